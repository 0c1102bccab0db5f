"""Reads trace files with bounds, whole or piece by piece; nothing in a file is believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.core.errors import TraceError
from stickymoe.core.settings import require_at_least
from stickymoe.traces.order import PieceOrder
from stickymoe.traces.schema import COLUMNS, TraceFacts
from stickymoe.traces.trace import RoutingTrace


class TraceReader:
    """An open trace file: its facts at once, its rows in pieces.

        with open_trace("trace.parquet") as reader:
            for piece in reader.batches(rows=65_536):
                print(reader.facts.num_experts, piece.num_tokens)

    Attributes:
        path: The file.
        facts: What its header says.
        num_tokens: Rows of the whole trace.
    """

    def __init__(self, path: Path | str, *, max_bytes: int = 2**33) -> None:
        """Open a file and check its header; see `open_trace`."""
        self.path = Path(path)
        self._max_bytes = max_bytes
        if not self.path.is_file():
            found = "a folder" if self.path.is_dir() else "nothing"
            raise TraceError(f"{self.path} must be a trace file, found {found}")
        with self._damage_told():
            self._file = pq.ParquetFile(self.path, page_checksum_verification=True, pre_buffer=False)
            self.num_tokens = int(self._file.metadata.num_rows)
            if self.num_tokens < 1:
                raise TraceError(f"a trace must have at least one token, got {self.num_tokens}")
            self.facts = TraceFacts.of_schema(self._file.schema_arrow)

    def __enter__(self) -> TraceReader:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; what was read stays."""
        self._file.close()

    def batches(self, rows: int | None = None) -> Iterator[RoutingTrace]:
        """Yield the trace in pieces of `rows` tokens (16 MiB of ids if not given), the last one shorter.

        A piece may begin or end inside a sequence; equal sequence ids in neighbouring pieces are one sequence. Only one
        piece is held at a time.

        Raises:
            SettingError: `rows` is below 1.
            TraceError: A piece is damaged, breaks a rule, or would need more than `max_bytes`.
        """
        if rows is not None:
            require_at_least("rows", rows, 1)
        with self._damage_told():
            size = min(rows or self.facts.batch_rows, self.num_tokens)
            self._require_room(size)
            order = PieceOrder()
            for arrays in self._pieces(size):
                order.add(arrays["sequence_id"], arrays.get("event_id"))
                yield self.facts.trace(arrays)

    def read(self) -> RoutingTrace:
        """Return the whole trace.

        Raises:
            TraceError: It is damaged, breaks a rule, or would need more than `max_bytes`.
        """
        with self._damage_told():
            self._require_room(self.num_tokens)
            names = self.facts.columns
            whole = {
                name: np.empty(self.facts.shape(name, self.num_tokens), dtype=self.facts.kind(name)) for name in names
            }
            start = 0
            for arrays in self._pieces(self.facts.batch_rows):
                stop = start + len(arrays["sequence_id"])
                for name in names:
                    whole[name][start:stop] = arrays[name]
                start = stop
            return self.facts.trace(whole)

    def _require_room(self, rows: int) -> None:
        if rows * self.facts.row_bytes > self._max_bytes:
            found = f"{rows} tokens of {self.facts.row_bytes} bytes"
            rule = f"the trace must fit in max_bytes {self._max_bytes}, got {found}"
            raise TraceError(f"{rule}; raise max_bytes if you trust the file")

    def _pieces(self, rows: int) -> Iterator[dict[str, np.ndarray]]:
        done = 0
        for batch in self._file.iter_batches(batch_size=rows):
            done += batch.num_rows
            if done > self.num_tokens:
                raise TraceError(f"the file must hold the {self.num_tokens} tokens its footer names, found more")
            if batch.num_rows:
                yield {name: self._values(batch.column(name), name) for name in self.facts.columns}
        if done != self.num_tokens:
            raise TraceError(f"the file must hold the {self.num_tokens} tokens its footer names, found {done}")

    def _values(self, column: pa.Array, name: str) -> np.ndarray:
        flat = column.flatten() if COLUMNS[name].slots else column
        if column.null_count or flat.null_count:
            raise TraceError(f"column {name!r} must have a value in every row, found an empty one")
        values: np.ndarray = flat.to_numpy(zero_copy_only=False)
        return values.reshape(self.facts.shape(name, len(column)))

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        damage = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError, RecursionError)
        try:
            yield
        except TraceError as error:
            raise TraceError(f"{self.path}: {error}") from error
        except damage as error:
            detail = " ".join(str(error).split())[:200] or type(error).__name__
            raise TraceError(f"{self.path} is not a readable trace file: {detail}; record or copy it again") from error


def open_trace(path: Path | str, *, max_bytes: int = 2**33) -> TraceReader:
    """Open a trace file (docs/trace-format.md) to read it in pieces, whatever its size.

    Args:
        path: A file that `RoutingTrace.save` or `TraceWriter` wrote; `read_trace` reads other formats.
        max_bytes: Memory that a piece may take.

    Raises:
        TraceError: Not a trace file, damaged, of another version, or inconsistent.
    """
    return TraceReader(path, max_bytes=max_bytes)


def load_trace(path: Path, *, max_bytes: int) -> RoutingTrace:
    """Read the trace at `path`, trusting nothing in it.

    Raises:
        TraceError: Not a trace file, damaged, of another version, inconsistent, or larger in memory than `max_bytes`.
    """
    with TraceReader(path, max_bytes=max_bytes) as reader:
        return reader.read()
