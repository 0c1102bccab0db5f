"""Documents become the sequences that a model reads: tokens, cut to a length, within a budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from stickymoe.capture.recording.texts import TextDocument, Texts
from stickymoe.core.errors import DataError, SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.data.progress import ProgressCallback, silent


@dataclass(frozen=True, eq=False)
class Prompt:
    """One sequence.

    Attributes:
        token_ids: Its tokens, a begin-of-text token first where the tokenizer begins texts with one.
        document: The number of its document.
    """

    token_ids: np.ndarray
    document: int


@dataclass(frozen=True)
class Prompts:
    """All sequences, and the names of their documents."""

    sequences: list[Prompt]
    documents: list[str]

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(len(each.token_ids) for each in self.sequences)


def plan_prompts(
    texts: Texts,
    tokenizer: PreTrainedTokenizerBase,
    *,
    length: int,
    max_tokens: int | None = None,
    shortest: int = 1,
    progress: ProgressCallback = silent,
) -> Prompts:
    """Cut documents into sequences of up to `length` tokens; no sequence holds two documents.

    Where the tokenizer begins a text with a token of its own, each sequence begins with it: models that grew up with
    one route and predict badly without. Reading stops when `max_tokens` are together. Tokens are held, four bytes each.

    Args:
        texts: The documents.
        tokenizer: Of the model.
        length: Tokens of a sequence at most, >= 1 and more than the tokenizer puts in front.
        max_tokens: Tokens of all sequences at most; all if not given.
        shortest: Sequences with fewer tokens are left out, such as a document's tail.
        progress: Told how many tokens are together.

    Raises:
        DataError: The texts hold no token.
        SettingError: `length` or `max_tokens` leaves no room.
    """
    front = _front(tokenizer)
    require_at_least("chunk", length, len(front) + 1, "a sequence must have a token of text")
    if max_tokens is not None:
        require_at_least("max-tokens", max_tokens, len(front) + 1)
    found, names, total = list[Prompt](), list[str](), 0
    for number, document in enumerate(texts.read()):
        names.append(document.name)
        for tokens in _sequences(_tokens(document, tokenizer), front, length):
            room = length if max_tokens is None else max_tokens - total
            kept = tokens[:room]
            if len(kept) >= max(shortest, len(front) + 1):
                found.append(Prompt(kept, number))
                total += len(kept)
                progress("reading the text", total, max_tokens)
            if max_tokens is not None and total + max(shortest, len(front) + 1) > max_tokens:
                return Prompts(found, names)
    if not found:
        raise DataError(f"{texts.name} must hold at least {max(1, shortest)} tokens of text, found none; name another")
    return Prompts(found, names)


def _sequences(blocks: Iterator[list[int]], front: list[int], length: int) -> Iterator[np.ndarray]:
    """Yield a document's tokens in full sequences, the rest last."""
    room = length - len(front)
    rest: list[int] = []
    for block in blocks:
        rest += block
        full = len(rest) // room * room
        for start in range(0, full, room):
            yield np.array(front + rest[start : start + room], dtype=np.int32)
        del rest[:full]
    if rest:
        yield np.array(front + rest, dtype=np.int32)


def _tokens(document: TextDocument, tokenizer: PreTrainedTokenizerBase) -> Iterator[list[int]]:
    if not document.messages:
        for block in document.blocks:
            yield _encoded(tokenizer, block)
        return
    if not getattr(tokenizer, "chat_template", None):
        raise SettingError(
            f"{document.name} is a chat, and the model's tokenizer has no chat template; give plain text, or a model "
            "that was tuned for chats"
        )
    template: Any = tokenizer.apply_chat_template
    turns = [message._asdict() for message in document.messages]
    try:
        text = template(turns, tokenize=False)
    except Exception as error:  # templates raise what they like
        raise DataError(f"{document.name} does not fit the chat template: {' '.join(str(error).split())}") from error
    begins = tokenizer.bos_token
    yield _encoded(tokenizer, text.removeprefix(begins) if begins else text)


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _front(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return what the tokenizer puts in front of a text."""
    whole: list[int] = tokenizer("a")["input_ids"]
    bare = _encoded(tokenizer, "a")
    places = range(len(whole) - len(bare) + 1)
    return whole[: next((place for place in places if whole[place : place + len(bare)] == bare), 0)]
