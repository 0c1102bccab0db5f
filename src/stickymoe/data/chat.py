"""Conversations as tokens: through the tokenizer's chat template, or in plain words where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jinja2 import TemplateError

from stickymoe.core.errors import DataError
from stickymoe.data.messages import Message


class TemplateRefusal(DataError):
    """A chat template does not take a conversation, such as one that begins with the assistant."""


def has_template(tokenizer: Any) -> bool:
    """Return whether the tokenizer knows how its model wants conversations written."""
    return bool(getattr(tokenizer, "chat_template", None))


def rendered(tokenizer: Any, messages: Sequence[Message], where: str) -> str:
    """Return a conversation as one text, special tokens spelled out.

    Raises:
        TemplateRefusal: The template does not take it.
    """
    if not has_template(tokenizer):
        return "".join(plain_turn(message) for message in messages)
    turns = [message._asdict() for message in messages]
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False))
    except (TemplateError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TemplateRefusal(f"{where} is not taken by the tokenizer's chat template: {reason:.120}") from error


def plain_turn(message: Message) -> str:
    """Write a turn where there is no template: `user: ...` and a line of its own."""
    return f"{message.role}: {message.content}\n"


def assistant_spans(tokenizer: Any, messages: Sequence[Message], text: str, where: str) -> list[tuple[int, int]]:
    """Return where in `text`, the rendered conversation, the assistant's words stand, as character ranges.

    What a template writes for the turns up to one must begin what it writes for all of them, or nobody could tell.

    Raises:
        TemplateRefusal: The template writes earlier turns otherwise once later ones follow.
    """
    spans, start = [], 0
    for number, message in enumerate(messages, 1):
        so_far = text if number == len(messages) else rendered(tokenizer, messages[:number], where)
        if not text.startswith(so_far):
            raise TemplateRefusal(
                f"{where}: the chat template rewrites earlier turns, so that the assistant's words cannot be told; "
                "take the loss on all tokens"
            )
        if message.role == "assistant":
            begin = text.find(message.content.strip(), start) if message.content.strip() else start
            spans.append((begin if begin >= 0 else start, len(so_far)))
        start = len(so_far)
    return spans


def tokens_within(offsets: np.ndarray, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return which tokens begin inside a span; `offsets` holds each token's range of characters."""
    inside = np.zeros(len(offsets), dtype=np.bool_)
    for begin, end in spans:
        inside |= (offsets[:, 0] >= begin) & (offsets[:, 0] < end) & (offsets[:, 1] > offsets[:, 0])
    return inside
