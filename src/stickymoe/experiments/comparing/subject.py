"""What is compared: a model that read the text, or a trace that somebody recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stickymoe.capture.opening import PreparedModel, prepare_model, require_choice
from stickymoe.capture.recording import Prompts, Texts, plan_prompts
from stickymoe.core.errors import SettingError
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.experiments.comparing.reading import TokenValues, read_text
from stickymoe.traces import RoutingTrace, read_trace, require_ordered


@dataclass(frozen=True, eq=False)
class Subject:
    """One of the two.

    Attributes:
        name: What the user called it.
        trace: What it routes.
        values: What is known of each token beside; None for a trace.
    """

    name: str
    trace: RoutingTrace
    values: TokenValues | None = None


@dataclass(frozen=True)
class Pair:
    """Two subjects, and the documents they read.

    Attributes:
        first: What the other is compared with.
        second: The other.
        documents: Names by number; empty for traces.
        text: What was read, in words.
    """

    first: Subject
    second: Subject
    documents: tuple[str, ...] = ()
    text: str = ""

    @property
    def is_paired(self) -> bool:
        """Whether both are known to have routed the same tokens, sequence by sequence."""
        one, other = self.first.trace, self.second.trace
        if one.sequence_starts().tolist() != other.sequence_starts().tolist():
            return False
        if one.token_ids is None or other.token_ids is None:
            return False
        return np.array_equal(one.token_ids, other.token_ids)


def is_trace(name: str) -> bool:
    """Tell a trace from a model: a trace is a file."""
    return Path(name).expanduser().is_file()


def read_traces(first: str, second: str) -> Pair:
    """Return two traces of any format.

    Raises:
        TraceError: One cannot be read, or holds counts without order.
    """
    subjects = [
        Subject(name, require_ordered(read_trace(Path(name).expanduser()), "a comparison")) for name in (first, second)
    ]
    return Pair(subjects[0], subjects[1])


def read_models(
    names: tuple[str, str],
    texts: Texts,
    *,
    chunk: int,
    max_tokens: int | None,
    batch_size: int,
    dtype: str | None = None,
    device: str | None = None,
    progress: ProgressCallback = silent,
) -> Pair:
    """Let two models read the same text, one after the other, so that only one is in memory.

    Both are looked over before either is loaded.

    Args:
        names: Folders, runs or names on the hub.
        texts: What they read.
        chunk: Tokens of a sequence at most.
        max_tokens: Tokens in all at most.
        batch_size: Sequences side by side.
        dtype: Of the weights, as saved if not given.
        device: Where to compute.
        progress: Called as `progress(description, done, total)`.

    Raises:
        SettingError: The two cut the text into different tokens, or a setting breaks its rule.
        CheckpointError: One cannot be opened.
        CaptureError: One is dense, or its routing cannot be captured.
    """
    progress("looking both over", 0, None)
    prepared = [prepare_model(name, dtype=dtype, device=device) for name in names]
    for each in prepared:
        require_choice(each.config, each.place.name)
    length = min(chunk, *(_positions(each) for each in prepared))
    plans = [
        plan_prompts(texts, each.tokenizer, length=length, max_tokens=max_tokens, shortest=2, progress=progress)
        for each in prepared
    ]
    _require_same_tokens(names, *plans)
    subjects = []
    for number, each in enumerate(prepared):
        progress(f"opening {'AB'[number]}", 0, None)
        opened = each.load()
        subjects.append(
            Subject(names[number], *read_text(opened, plans[0], batch_size, f"reading {'AB'[number]}", progress))
        )
        del opened
    planned = plans[0]
    read = f"{texts.name}{', ' + texts.facts['split'] if 'split' in texts.facts else ''}"
    size = (
        f"{planned.num_tokens:,} tokens of {len(planned.documents):,} documents in {len(planned.sequences):,} sequences"
    )
    return Pair(subjects[0], subjects[1], tuple(planned.documents), f"{read}: {size}")


def _positions(prepared: PreparedModel) -> int:
    positions = getattr(prepared.config.get_text_config(), "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else 2**31


def _require_same_tokens(names: tuple[str, str], one: Prompts, other: Prompts) -> None:
    """Refuse two tokenizers: nats a token say nothing where a token is not the same piece of text."""
    for number, (left, right) in enumerate(zip(one.sequences, other.sequences, strict=False)):
        if not np.array_equal(left.token_ids, right.token_ids):
            raise SettingError(
                f"{names[0]} and {names[1]} must cut the text into the same tokens, and differ in sequence {number}: "
                "perplexities a token do not compare; record a trace of each (stickymoe trace record) and compare those"
            )
    if len(one.sequences) != len(other.sequences):
        raise SettingError(
            f"{names[0]} and {names[1]} must cut the text into the same tokens, and one has more of them"
        )
