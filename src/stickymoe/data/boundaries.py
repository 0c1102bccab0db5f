"""Which tokens end a sentence or a line, for penalties that relax there."""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

ENDS = (".", "!", "?")
CLOSING = " \"')\u2019\u201d"  # spaces, straight and curly closing quotes, brackets


def boundary_token_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids of the tokens after which a new sentence or line begins.

    A token counts when its text holds a newline, or ends in . ! or ? once spaces and closing quotes are set aside.
    Inside numbers and abbreviations that errs on the side of a boundary.

    Source: Sticky Routing, section 6 (limitations).
    """
    pieces = (str(tokenizer.decode([token])) for token in range(len(tokenizer)))
    return [token for token, piece in enumerate(pieces) if "\n" in piece or piece.rstrip(CLOSING).endswith(ENDS)]
