"""A corpus ready for a model: integer tokens by split, their documents, the tokenizer, where it all came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from stickymoe.core.errors import DataError


@dataclass(frozen=True)
class TokenSplit:
    """One split: its tokens in one row, and the document each belongs to.

    Attributes:
        tokens: int32, one-dimensional.
        document_ids: int32, as long as `tokens`, never decreasing.
    """

    tokens: np.ndarray
    document_ids: np.ndarray

    def __post_init__(self) -> None:
        """Check the shape once, so that nobody else has to.

        Raises:
            DataError: The arrays break the rules above.
        """
        for name, array in (("tokens", self.tokens), ("document_ids", self.document_ids)):
            if array.dtype != np.int32 or array.ndim != 1:
                raise DataError(
                    f"TokenSplit.{name} must be a one-dimensional int32 array, "
                    f"got {array.ndim} dimensions of {array.dtype}"
                )
        if len(self.tokens) != len(self.document_ids):
            raise DataError(
                f"TokenSplit.document_ids must be as long as tokens ({len(self.tokens)}), got {len(self.document_ids)}"
            )
        if bool(np.any(self.document_ids[1:] < self.document_ids[:-1])):
            raise DataError("TokenSplit.document_ids must never decrease, they do; number documents in reading order")

    @property
    def num_tokens(self) -> int:
        """How many tokens the split has."""
        return len(self.tokens)

    @property
    def num_documents(self) -> int:
        """How many documents have a token in the split."""
        return len(self.tokens[:1]) + int(np.count_nonzero(np.diff(self.document_ids)))


class Splits(dict[str, TokenSplit]):
    """Splits by name; asking for one that is not there says what was looked for."""

    def __init__(self, corpus: str, splits: dict[str, TokenSplit], missing: dict[str, str]) -> None:
        """Hold `splits`; `missing` names, for each absent split, the file that was looked for."""
        super().__init__(splits)
        self._corpus = corpus
        self._missing = missing

    def __missing__(self, split: str) -> TokenSplit:
        """Refuse.

        Raises:
            DataError: Always.
        """
        looked_for = f"; looked for {self._missing[split]}, put it there" if split in self._missing else ""
        raise DataError(f"split of {self._corpus} must be one of {', '.join(self)}, got {split!r}{looked_for}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, as data loaders' workers need."""
        return Splits, (self._corpus, dict(self), self._missing)


@dataclass(frozen=True)
class Corpus:
    """A tokenised corpus.

    Attributes:
        name: What it is called in reports.
        splits: `train`, `validation`, `test`; WikiText may lack some. An absent one raises `DataError`.
        tokenizer: What made the tokens.
        vocab_size: Every token is below it.
        fingerprint: Hex SHA-256 of all tokens, document borders and the tokenizer.
        provenance: JSON-able: files with checksums, split rule, tokenizer, counts.
    """

    name: str
    splits: dict[str, TokenSplit]
    tokenizer: PreTrainedTokenizerFast
    vocab_size: int
    fingerprint: str
    provenance: dict[str, Any]


def describe_corpus(corpus: Corpus) -> list[dict[str, Any]]:
    """Return one row a split, `{"split", "documents", "tokens"}`, for a table of counts."""
    return [
        {"split": name, "documents": split.num_documents, "tokens": split.num_tokens}
        for name, split in corpus.splits.items()
    ]
