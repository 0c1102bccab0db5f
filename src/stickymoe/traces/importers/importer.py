"""What an importer of a foreign trace format is: how it knows its files, and what it makes of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import checked_num_experts
from stickymoe.traces.profile import UsageProfile
from stickymoe.traces.trace import RoutingTrace

HEAD_BYTES = 2**16


@dataclass(frozen=True)
class Head:
    """The first bytes of a file, read once for detection.

    Args:
        path: The file, or the folder of a format that is several files.
        data: Its first bytes, at most 64 KiB; empty for a folder.
        size: Bytes of the whole file; 0 for a folder.
    """

    path: Path
    data: bytes
    size: int

    @classmethod
    def of(cls, path: Path) -> Head:
        """Read the head of `path`.

        Raises:
            TraceError: There is nothing, or nothing that may be read.
        """
        if path.is_dir():
            return cls(path, b"", 0)
        if not path.is_file():
            raise TraceError(f"{path} must be a trace file, found {'no regular file' if path.exists() else 'nothing'}")
        try:
            with path.open("rb") as file:
                return cls(path, file.read(HEAD_BYTES), path.stat().st_size)
        except OSError as error:
            raise TraceError(f"{path} could not be read: {(error.strerror or str(error)).lower()}") from error

    @property
    def suffix(self) -> str:
        """The name's last suffix in small letters, with its dot."""
        return self.path.suffix.lower()

    @property
    def is_whole(self) -> bool:
        """Whether `data` is all there is."""
        return len(self.data) == self.size

    @cached_property
    def text(self) -> str | None:
        """The head as UTF-8 text, cut after its last newline unless it is the whole file; None where it is no text."""
        data = self.data if self.is_whole else self.data[: self.data.rfind(b"\n") + 1]
        if not data or b"\0" in data:
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def lines(self) -> list[str]:
        """The head's whole lines that are not blank, stripped; none where it is no text."""
        return [line.strip() for line in (self.text or "").splitlines() if line.strip()]


@dataclass(frozen=True)
class ReadOptions:
    """What the user knows and the file may not say.

    Args:
        num_experts: Experts a layer.
        top_k: Experts chosen a token.
        num_layers: MoE layers.
        prompt_tokens: Tokens of each sequence that belong to its prompt: prefill, the others decode.
        chunk_tokens: Tokens after which the context was cleared: a text read in chunks is a sequence a chunk.
        max_bytes: Memory that a trace may take.
        selection: How experts are chosen from raw logits, such as `softmax-topk`.
    """

    num_experts: int | None = None
    top_k: int | None = None
    num_layers: int | None = None
    prompt_tokens: int | None = None
    chunk_tokens: int | None = None
    max_bytes: int = 2**33
    selection: str | None = None

    def experts(self, declared: int | None, largest_id: int) -> tuple[int, str]:
        """Decide the number of experts, and say from what: `given`, `declared`, or `largest id + 1`.

        Args:
            declared: What the file says, None where it says nothing.
            largest_id: The largest id met.

        Returns:
            The number, and the word for `provenance["num_experts_from"]`.

        Raises:
            TraceError: An id does not fit the number, or the user and the file disagree.
        """
        if self.num_experts is not None and declared is not None and self.num_experts != declared:
            found = f"num_experts {self.num_experts} against {declared} in the file"
            raise TraceError(f"num_experts must be what the file declares, got {found}; leave it out")
        source = "given" if self.num_experts is not None else "declared"
        number = self.num_experts if self.num_experts is not None else declared
        if number is None:
            number, source = max(largest_id, 0) + 1, "largest id + 1"
        number = checked_num_experts(number)
        if largest_id >= number:
            raise TraceError(
                f"expert ids must be below num_experts {number} ({source}), got {largest_id}; give the right number"
            )
        return number, source

    def require_room(self, needed: int, what: str) -> None:
        """Raise unless `needed` bytes are within `max_bytes`; to be called before they are taken."""
        if needed > self.max_bytes:
            raise TraceError(
                f"the trace must fit in max_bytes {self.max_bytes}, got {what} of {needed} bytes; "
                "raise max_bytes if you trust the file"
            )


@dataclass(frozen=True)
class Importer:
    """One foreign format.

    Args:
        name: What `--format` takes.
        what: One line for docs and `--help`.
        matches: Whether a file is of this format, by its content; cheap, raises nothing.
        read: Reads a file. Its `TraceError` says where and which rule; the file's name is put before it.
        gives: What a file becomes: `trace`, `profile`, or `trace or profile`.
        needs: What the caller may have to tell, in words, with fields of `ReadOptions` in backticks.
        loses: What is in the file and not in the trace, and what the file never had.
    """

    name: str
    what: str
    matches: Callable[[Head], bool]
    read: Callable[[Path, ReadOptions], RoutingTrace | UsageProfile]
    gives: str = "trace"
    needs: str = ""
    loses: str = ""
