"""`record_trace`: reads texts to a model, lets it write on, and streams what its routers chose to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, set_seed

from stickymoe.capture.opening import OpenedModel, require_choice
from stickymoe.capture.recording.facts import provenance
from stickymoe.capture.recording.prompts import Prompt, Prompts, plan_prompts
from stickymoe.capture.recording.run_batch import Ran, Writing, read_batch, write_batch
from stickymoe.capture.recording.texts import Texts
from stickymoe.capture.recording.watch import Watch
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.traces import DECODE, RoutingTrace, TraceWriter

COLDEST, HOTTEST = 0.01, 100.0  # beyond these a softmax is 0/1 or flat
CHUNK = 512  # tokens of a sequence where nobody says


class Stopped(Exception):
    """The user asked to stop in the middle of a batch; only ever seen inside this room."""


@dataclass(frozen=True)
class Recording:
    """What to record.

    Args:
        chunk: Tokens of text a sequence at most; 512, or what the model's positions leave, if not given.
        max_tokens: Tokens of text at most; all if not given.
        batch_size: Sequences side by side, >= 1.
        writing: What the model writes after each of them.
        seed: Of the sampling.
    """

    chunk: int | None = None
    max_tokens: int | None = None
    batch_size: int = 8
    writing: Writing = field(default_factory=Writing)
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least("batch-size", self.batch_size, 1)
        require_at_least("generate", self.writing.tokens, 0)
        temperature = self.writing.temperature
        if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
            raise SettingError.broken("temperature", f"0 (greedy) or in [{COLDEST}, {HOTTEST:g}]", temperature)
        if not 0 < self.writing.top_p <= 1:
            raise SettingError.broken("top-p", "in (0, 1]", self.writing.top_p)
        if not 0 <= self.seed < 2**32:
            raise SettingError.broken("seed", "in [0, 2^32)", self.seed)


@dataclass(frozen=True)
class Recorded:
    """What a recording became.

    Attributes:
        path: The file; None if nothing was whole when the user stopped it.
        sequences: Sequences in it.
        planned: Sequences there were to record.
        tokens: Rows of the trace.
        decoded: Those of them that the model wrote.
        layers: MoE layers.
        stopped: Whether the user stopped it.
    """

    path: Path | None
    sequences: int
    planned: int
    tokens: int
    decoded: int
    layers: int
    stopped: bool


def record_trace(
    opened: OpenedModel,
    texts: Texts,
    out: str | Path,
    recording: Recording | None = None,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    progress: ProgressCallback = silent,
) -> Recorded:
    """Record what a model's routers choose on texts, and on what it writes after them.

        opened = open_model("runs/soft")
        record_trace(opened, find_texts("code.txt"), "trace.parquet", Recording(max_tokens=100_000))

    The trace has a sequence for each piece of text, in order: prefill, then decode; gate weights, token ids, documents,
    positions and forward passes; sizes of experts. One batch is held in memory at a time. The file appears when all is
    done: a killed recording or a full disk leaves what stood there before.

    Args:
        opened: The model.
        texts: What to read to it.
        out: Where the trace goes.
        recording: How much; see `Recording`.
        should_stop: Asked after each forward pass. Once it says so, the batch under way is dropped and the file ends
            with the last whole one; its provenance says how many sequences were planned.
        progress: Called as `progress(description, done, total)`.

    Raises:
        SettingError: A setting breaks its rule or does not fit the model.
        DataError: The texts cannot be read, or hold nothing.
        CaptureError: Every expert serves every token, the model's routing was not seen, or it cannot write.
        StorageError: The disk refuses the file.
    """
    asked = recording or Recording()
    model = opened.model
    require_choice(model.config, opened.name)
    length = _chunk(asked, model)
    prompts = plan_prompts(texts, opened.tokenizer, length=length, max_tokens=asked.max_tokens, progress=progress)
    told = provenance(
        opened.name,
        model,
        data=texts.facts,
        text_tokens=prompts.num_tokens,
        sequences_planned=len(prompts.sequences),
        chunk=length,
        batch_size=asked.batch_size,
        **({"generate": asdict(asked.writing) | {"seed": asked.seed}} if asked.writing.tokens else {}),
    )
    done = _Count()
    pieces = _pieces(model, opened.fill, prompts, asked, told, should_stop, progress, done)
    first = next(pieces, None)
    if first is not None:
        with TraceWriter(out, provenance=told) as writer:
            writer.write(first)
            for piece in pieces:
                writer.write(piece)
    return Recorded(
        None if first is None else Path(out),
        done.sequences,
        len(prompts.sequences),
        done.tokens,
        done.decoded,
        0 if first is None else first.num_layers,
        done.stopped,
    )


@dataclass
class _Count:
    sequences: int = 0
    tokens: int = 0
    decoded: int = 0
    stopped: bool = False

    def add(self, piece: RoutingTrace) -> None:
        assert piece.phases is not None
        self.sequences += piece.num_sequences
        self.tokens += piece.num_tokens
        self.decoded += int(np.count_nonzero(piece.phases == DECODE))


def _pieces(
    model: PreTrainedModel,
    fill: int,
    prompts: Prompts,
    asked: Recording,
    told: dict[str, Any],
    should_stop: Callable[[], bool],
    progress: ProgressCallback,
    done: _Count,
) -> Iterator[RoutingTrace]:
    """Yield the trace of one batch after the other, until all are done or the user stops."""

    def stop_if_asked(*_: object) -> None:
        if should_stop():
            raise Stopped

    set_seed(asked.seed)
    what = "recording"
    with Watch(model, on_pass=stop_if_asked) as watch:
        for start in range(0, len(prompts.sequences), asked.batch_size):
            progress(what, start, len(prompts.sequences))
            batch = prompts.sequences[start : start + asked.batch_size]
            try:
                ran = _run(model, batch, fill, asked.writing)
            except Stopped:
                done.stopped = True
                return
            numbers = np.arange(start, start + len(batch))
            documents = np.array([prompt.document for prompt in batch])
            piece = watch.piece(ran.token_ids, ran.real, numbers, documents, told)
            done.add(piece)
            yield piece
    progress(what, len(prompts.sequences), len(prompts.sequences))


def _run(model: PreTrainedModel, batch: list[Prompt], fill: int, writing: Writing) -> Ran:
    try:
        return write_batch(model, batch, fill, writing) if writing.tokens else read_batch(model, batch, fill)
    except torch.OutOfMemoryError as error:
        raise CaptureError(
            f"the memory of {model.device} is too small for {len(batch)} sequences side by side; lower --batch-size or "
            "--chunk"
        ) from error


def _chunk(asked: Recording, model: PreTrainedModel) -> int:
    """Return the tokens of text a sequence has, which with what is written must fit the model's positions."""
    if asked.writing.tokens and not model.can_generate():
        raise CaptureError(f"{type(model).__name__} cannot write text in transformers; record without --generate")
    positions: Any = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    written = asked.writing.tokens
    if not isinstance(positions, int) or positions < 1:
        return asked.chunk or CHUNK
    if written >= positions:
        raise SettingError.broken("generate", f"< {positions}, the model's positions", written)
    if asked.chunk is None:
        return min(CHUNK, positions - written)
    if asked.chunk + written > positions:
        rule = f"<= {positions - written}, what {written} written tokens leave of the model's {positions} positions"
        raise SettingError.broken("chunk", rule, asked.chunk)
    return asked.chunk
