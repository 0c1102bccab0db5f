"""From samples to tokens, with the model's own tokenizer: as many as are wanted, in an order drawn once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stickymoe.core.errors import DataError
from stickymoe.data.chat import TemplateRefusal, assistant_spans, has_template, rendered, tokens_within
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.data.samples import Sample

CHARACTERS_A_TOKEN = 64  # more than any tokenizer's average

LossOn = Literal["all", "assistant"]


@dataclass(frozen=True)
class EncodedText:
    """One document as tokens.

    Attributes:
        tokens: int32.
        counted: Which of them are targets; None where all are.
    """

    tokens: np.ndarray
    counted: np.ndarray | None = None

    @property
    def num_targets(self) -> int:
        """How many tokens are predicted: all that count but the first."""
        return len(self.tokens) - 1 if self.counted is None else int(self.counted[1:].sum())


@dataclass(frozen=True)
class EncodedTexts:
    """Documents as tokens.

    Attributes:
        texts: In the order to be read.
        notes: What a user should be told: a plain fallback, rows left out.
        whole: Whether no sample was left unread for want of room.
    """

    texts: tuple[EncodedText, ...]
    notes: tuple[str, ...]
    whole: bool

    @property
    def num_tokens(self) -> int:
        """How many tokens there are."""
        return sum(len(text.tokens) for text in self.texts)


def encode_samples(
    samples: Sequence[Sample],
    tokenizer: Any,
    *,
    vocab_size: int,
    what: str,
    loss_on: LossOn = "all",
    at_most: int | None = None,
    seed: int | None = None,
    progress: ProgressCallback | None = None,
) -> EncodedTexts:
    """Tokenise samples until there are enough tokens.

    A plain text begins and ends as its tokenizer does by itself, and ends with the end-of-text token where there is
    one. Documents of one token, which predict nothing, are left out, and so are conversations that the chat template
    refuses; `notes` tell how many.

    Args:
        samples: What to tokenise.
        tokenizer: One of transformers'.
        vocab_size: Tokens that the model embeds; every id must be below it.
        what: What this is, for errors and progress.
        loss_on: Whether all tokens are targets, or the assistant's alone.
        at_most: Tokens after which to stop; all samples if not given.
        seed: Draws the order; as they come if not given.
        progress: Told the tokens so far, of `at_most`.

    Raises:
        DataError: Nothing is left to predict, or an id is not below `vocab_size`.
    """
    found: list[EncodedText] = []
    refused: list[TemplateRefusal] = []
    tokens = short = chats = read = 0
    for sample in _ordered(samples, seed):
        if at_most is not None and tokens >= at_most:
            break
        read += 1
        chats += sample.is_chat
        try:
            text = _encode(sample, tokenizer, loss_on, None if at_most is None else at_most - tokens)
        except TemplateRefusal as error:
            refused.append(error)
            continue
        _require_fitting(text.tokens, vocab_size, sample.where)
        if len(text.tokens) < 2:
            short += 1
            continue
        found.append(text)
        tokens += len(text.tokens)
        (progress or silent)(f"tokenising {what}", tokens, at_most)
    _require_targets(found, refused, short, what, loss_on)
    return EncodedTexts(tuple(found), tuple(_notes(what, tokenizer, chats, refused, short)), read == len(samples))


def _encode(sample: Sample, tokenizer: Any, loss_on: LossOn, room: int | None) -> EncodedText:
    """Tokenise one sample; of a plain text, as much as surely fills `room` tokens."""
    if isinstance(sample.content, str):
        read = sample.content if room is None else sample.content[: CHARACTERS_A_TOKEN * room]
        encoded = tokenizer(read, verbose=False)
        ids = np.array(encoded["input_ids"], dtype=np.int64)
        end = tokenizer.eos_token_id
        if end is not None and len(read) == len(sample.content) and (not len(ids) or ids[-1] != end):
            ids = np.append(ids, end)
        return EncodedText(_narrow(ids), np.zeros(len(ids), dtype=np.bool_) if loss_on == "assistant" else None)
    text = rendered(tokenizer, sample.content, sample.where)
    templated = has_template(tokenizer)  # a template writes the special tokens itself
    wanted = loss_on == "assistant"
    encoded = tokenizer(text, add_special_tokens=not templated, return_offsets_mapping=wanted, verbose=False)
    ids = np.array(encoded["input_ids"], dtype=np.int64)
    counted = None
    if wanted:
        spans = assistant_spans(tokenizer, sample.content, text, sample.where)
        counted = tokens_within(np.array(encoded["offset_mapping"]).reshape(-1, 2), spans)
    end = tokenizer.eos_token_id
    if not templated and end is not None and len(ids) and ids[-1] != end:
        ids = np.append(ids, end)
        counted = None if counted is None else np.append(counted, False)
    return EncodedText(_narrow(ids), counted)


def _narrow(ids: np.ndarray) -> np.ndarray:
    return ids.astype(np.int32)


def _ordered(samples: Sequence[Sample], seed: int | None) -> Iterable[Sample]:
    if seed is None:
        return samples
    return (samples[row] for row in np.random.default_rng(seed).permutation(len(samples)))


def _require_fitting(tokens: np.ndarray, vocab_size: int, where: str) -> None:
    if len(tokens) and int(tokens.max()) >= vocab_size:
        raise DataError(
            f"the tokenizer must fit the model, which embeds {vocab_size} tokens, got id {int(tokens.max())} in "
            f"{where}; name the tokenizer that the model was trained with"
        )


def _require_targets(
    found: Sequence[EncodedText], refused: Sequence[Exception], short: int, what: str, loss_on: LossOn
) -> None:
    if not found:
        reason = str(refused[0]) if refused else f"{short} rows hold one token or none"
        raise DataError(f"the {what} must have a text of at least two tokens, got none: {reason}")
    if not any(text.num_targets for text in found):
        way_out = "take the loss on all tokens, or give conversations" if loss_on == "assistant" else "give other text"
        raise DataError(f"the {what} must have a token to predict, got labels that are all masked; {way_out}")


def _notes(what: str, tokenizer: Any, chats: int, refused: Sequence[Exception], short: int) -> Iterable[str]:
    if chats and not has_template(tokenizer):
        yield f"the tokenizer has no chat template: {chats} conversations of the {what} are written as 'role: words'"
    if refused:
        yield f"left out {len(refused)} conversations of the {what}, the first since {refused[0]}"
    if short:
        yield f"left out {short} rows of the {what} that hold one token or none"
