"""The text of a tuning: rows to train on within a token budget, and rows to measure on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from stickymoe.core.errors import SettingError
from stickymoe.data.encoding import EncodedTexts, encode_samples
from stickymoe.data.rows import DocumentRows, PackedRows, PaddedRows
from stickymoe.data.samples import Samples
from stickymoe.experiments.tuning.settings import TuneSettings

LENGTH = 512  # tokens of a row where nobody says
MOST_READ = 16

Report = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True, eq=False)
class TuningText:
    """What a tuning reads.

    Attributes:
        train: Rows to train on.
        held_out: Rows to measure on, a document or a piece of one each.
        steps: Optimiser steps that take the token budget.
        notes: What a user should be told.
        facts: What a report should remember; JSON.
    """

    train: DocumentRows
    held_out: PaddedRows
    steps: int
    notes: tuple[str, ...]
    facts: dict[str, Any]


def prepare_text(
    samples: Samples, tokenizer: Any, model: nn.Module, settings: TuneSettings, progress: Report
) -> TuningText:
    """Tokenise what is wanted of the samples and lay it out in rows.

    Raises:
        SettingError: Rows are longer than the model's positions.
        DataError: Nothing is left to predict, or the tokenizer does not fit the model.
    """
    length = _length(settings.sequence_length, model)
    told: dict[str, Any] = {
        "vocab_size": vocabulary_of(model),
        "loss_on": settings.loss_on,
        "seed": settings.seed,
        "progress": progress,
    }
    train = encode_samples(samples.train, tokenizer, what="training text", at_most=settings.tokens, **told)
    room = MOST_READ * settings.evaluation_tokens  # so that there are many documents even where they are long
    held = encode_samples(samples.held_out, tokenizer, what="held-out text", at_most=room, **told)
    rows = PackedRows(train.texts, length) if settings.packed else PaddedRows(train.texts, length)
    measured = PaddedRows(held.texts, length).spread(settings.evaluation_tokens)
    steps = _steps(rows, settings)
    notes = [*train.notes, *held.notes]
    if settings.tokens > rows.num_tokens:
        times = settings.tokens / rows.num_tokens
        notes.append(f"the text has {rows.num_tokens:,} tokens to train on: it is read {times:.1f} times over")
    return TuningText(rows, measured, steps, tuple(notes), samples.facts | _counts(train, held, rows, measured))


def _length(asked: int | None, model: nn.Module) -> int:
    """Return how long rows are."""
    config: Any = model.config
    most = getattr(config.get_text_config(), "max_position_embeddings", None)
    if asked is None:
        return min(LENGTH, most) if isinstance(most, int) else LENGTH
    if isinstance(most, int) and asked > most:
        raise SettingError.broken("tune.sequence_length", f"<= {most}, the model's positions", asked)
    return asked


def vocabulary_of(model: nn.Module) -> int:
    """Return how many tokens a model embeds."""
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    return int(embeddings.num_embeddings)


def _steps(rows: DocumentRows, settings: TuneSettings) -> int:
    """Return how many steps read as many tokens as the budget; the last step of an epoch may be shorter."""
    batches = math.ceil(len(rows) / settings.batch_size)
    steps_an_epoch = math.ceil(batches / settings.accumulation)
    return max(1, math.ceil(settings.tokens * steps_an_epoch / rows.num_tokens))


def _counts(train: EncodedTexts, held: EncodedTexts, rows: DocumentRows, measured: PaddedRows) -> dict[str, Any]:
    return {
        "sequence_length": rows.seq_len,
        "train": {"documents": len(train.texts), "tokens": rows.num_tokens, "rows": len(rows)},
        "held_out": {"documents": len(held.texts), "tokens": measured.num_tokens, "rows": len(measured)},
    }
