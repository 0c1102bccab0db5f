"""From documents to one row of tokens and the length of each document in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from stickymoe.core.errors import DataError
from stickymoe.data.corpus import TokenSplit
from stickymoe.data.gpt2 import END_OF_TEXT
from stickymoe.data.progress import ProgressCallback
from stickymoe.data.source import Document

BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class TokenRow:
    """All tokens of a split, int32, and how many belong to each of its documents in turn, int64."""

    tokens: np.ndarray
    document_lengths: np.ndarray

    def as_split(self) -> TokenSplit:
        """Return the split with a document id for every token, counted from 0."""
        ids = np.repeat(np.arange(len(self.document_lengths), dtype=np.int32), self.document_lengths)
        return TokenSplit(tokens=self.tokens, document_ids=ids)


def tokenise(
    documents: list[Document],
    tokenizer: Tokenizer,
    *,
    what: str,
    ends_documents: bool,
    progress: ProgressCallback,
    end_of_text: str | None = END_OF_TEXT,
) -> TokenRow:
    """Tokenise documents row by row, in batches of about a million characters.

    Text that spells the end-of-text token is text: only `ends_documents` writes that token.

    Args:
        documents: In the order wanted.
        tokenizer: The bare tokenizer; it is left as it is.
        what: What this is, for progress and errors: `train split of NAME`.
        ends_documents: Whether an end-of-text token closes each document.
        progress: Told the characters done.
        end_of_text: That token; None for a tokenizer that has none, whose documents no token closes.

    Raises:
        DataError: Not one token came out.
    """
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    closing = [] if end_of_text is None or not ends_documents else [tokenizer.token_to_id(end_of_text)]
    total = sum(len(row) for document in documents for row in document.rows)
    lengths = np.zeros(len(documents), dtype=np.int64)
    parts: list[np.ndarray] = []
    done = 0
    for batch in _batches(documents):
        progress(f"tokenising {what}", done, total)
        encodings = plain.encode_batch_fast([row for _, row, _ in batch], add_special_tokens=False)
        for (index, row, is_last), encoding in zip(batch, encodings, strict=True):
            ids = [*encoding.ids, *closing] if is_last else encoding.ids
            parts.append(np.array(ids, dtype=np.int32))
            lengths[index] += len(ids)
            done += len(row)
    progress(f"tokenising {what}", total, total)
    tokens = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)
    if not len(tokens):
        raise DataError(f"the {what} must not be empty, it holds no token; give it text")
    return TokenRow(tokens, lengths)


def _batches(documents: list[Document]) -> Iterator[list[tuple[int, str, bool]]]:
    """Yield rows as (document, row, whether the document's last), batched by size."""
    batch: list[tuple[int, str, bool]] = []
    size = 0
    for index, document in enumerate(documents):
        for number, row in enumerate(document.rows, start=1):
            batch.append((index, row, number == len(document.rows)))
            size += len(row)
            if size >= BATCH_CHARACTERS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch
