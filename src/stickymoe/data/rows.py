"""Rows for training any model on documents: packed one after the other, or each padded on its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from stickymoe.core.errors import DataError
from stickymoe.core.settings import require_at_least
from stickymoe.data.chunks import IGNORED
from stickymoe.data.encoding import EncodedText

Row = dict[str, Tensor]


class DocumentRows(Dataset[Row]):
    """Rows of at most `seq_len` tokens, with `input_ids` and `labels` at their own positions; models shift these.

    The first token of a document is nobody's target, for what precedes it is another document or nothing.

    Attributes:
        seq_len: Tokens of a row, at most.
    """

    seq_len: int

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def __getitem__(self, index: int) -> Row:
        """Return a row as int64 tensors."""

    @abstractmethod
    def row_tokens(self) -> np.ndarray:
        """Return how many tokens each row has."""

    @property
    def num_tokens(self) -> int:
        """How many tokens all rows hold."""
        return int(self.row_tokens().sum())


class PackedRows(DocumentRows):
    """Documents one after the other, cut every `seq_len` tokens; `position_ids` restart with each document.

    Without an attention mask these keep documents apart, in attention where the architecture heeds them and in the
    pairs of the objective always. A document that is cut begins anew in the next row.

    Args:
        texts: The documents, in order.
        seq_len: Tokens a row, >= 2.
        keep_tail: Whether what is left at the end is a row, if shorter; always so where it is the only one.

    Raises:
        SettingError: `seq_len` below 2.
    """

    def __init__(self, texts: Sequence[EncodedText], seq_len: int, *, keep_tail: bool = False) -> None:
        """Lay the documents end to end."""
        require_at_least("seq_len", seq_len, 2, "neighbours are compared")
        self.seq_len = seq_len
        self._tokens = np.concatenate([text.tokens for text in texts])
        lengths = [len(text.tokens) for text in texts]
        starts = np.cumsum([0, *lengths[:-1]])
        self._positions = np.arange(len(self._tokens)) - np.repeat(starts, lengths)
        masks = [np.ones(len(text.tokens), bool) if text.counted is None else text.counted for text in texts]
        self._counted = np.concatenate(masks) & (self._positions > 0)
        full, rest = divmod(len(self._tokens), seq_len)
        self._rows = full + int(rest > 1 and (keep_tail or full == 0))

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __getitem__(self, index: int) -> Row:
        """Return row `index`."""
        if not -self._rows <= index < self._rows:
            raise IndexError(f"row must be in [0, {self._rows}), got {index}")
        begin = index % self._rows * self.seq_len
        part = slice(begin, begin + self.seq_len)
        tokens, positions = self._tokens[part].astype(np.int64), self._positions[part]
        # what the row cuts off is not seen, so the first document counts from the row's start
        first = int(np.argmax(positions == 0)) if (positions == 0).any() else len(positions)
        positions = np.concatenate([np.arange(first), positions[first:]])
        labels = np.where(self._counted[part], tokens, IGNORED)
        return {name: torch.from_numpy(values) for name, values in _named(tokens, labels, positions).items()}

    def row_tokens(self) -> np.ndarray:
        """Return how many tokens each row has."""
        begins = np.arange(self._rows) * self.seq_len
        return np.minimum(begins + self.seq_len, len(self._tokens)) - begins


class PaddedRows(DocumentRows):
    """One document a row, cut where it is longer than `seq_len`; a batch is padded to its longest row.

    Args:
        texts: The documents, in order.
        seq_len: Most tokens of a row, >= 2.

    Raises:
        SettingError: `seq_len` below 2.
    """

    def __init__(self, texts: Sequence[EncodedText], seq_len: int) -> None:
        """Cut the documents."""
        require_at_least("seq_len", seq_len, 2, "neighbours are compared")
        self.seq_len = seq_len
        self._texts = tuple(texts)
        pieces = [
            (number, begin)
            for number, text in enumerate(texts)
            for begin in range(0, len(text.tokens), seq_len)
            if len(text.tokens) - begin > 1
        ]
        self._pieces = np.array(pieces, dtype=np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._pieces)

    def __getitem__(self, index: int) -> Row:
        """Return row `index`."""
        number, begin = map(int, self._pieces[index])
        text = self._texts[number]
        part = slice(begin, begin + self.seq_len)
        tokens = text.tokens[part].astype(np.int64)
        counted = np.ones(len(tokens), bool) if text.counted is None else text.counted[part].copy()
        counted[0] = False
        labels = np.where(counted, tokens, IGNORED)
        return {"input_ids": torch.from_numpy(tokens), "labels": torch.from_numpy(labels)}

    def row_documents(self) -> np.ndarray:
        """Return the number of each row's document."""
        return self._pieces[:, 0]

    def spread(self, tokens: int) -> PaddedRows:
        """Return as many rows as hold `tokens` tokens, at least one: the first of every document before any second."""
        turns = np.lexsort((self._pieces[:, 0], self._pieces[:, 1]))
        held = np.cumsum(self.row_tokens()[turns]) <= tokens
        part = PaddedRows(self._texts, self.seq_len)
        part._pieces = self._pieces[np.sort(turns[: max(1, int(held.sum()))])]
        return part

    def row_tokens(self) -> np.ndarray:
        """Return how many tokens each row has."""
        lengths = np.array([len(text.tokens) for text in self._texts], dtype=np.int64)
        numbers, begins = self._pieces.T
        return np.asarray(np.minimum(lengths[numbers] - begins, self.seq_len))


def collate_rows(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Stack rows to (batch, seq); shorter ones are padded on the right: token 0, label -100, mask 0.

    Raises:
        DataError: Packed rows differ in length: a mask would let their documents see each other.
    """
    lengths = [len(row["input_ids"]) for row in rows]
    longest = max(lengths)
    if min(lengths) < longest and "position_ids" in rows[0]:
        raise DataError(f"packed rows of a batch must be of one length, got {min(lengths)} to {longest}")
    batch = {
        name: torch.stack([_padded(row[name], longest, IGNORED if name == "labels" else 0) for row in rows])
        for name in rows[0]
    }
    if "position_ids" not in batch:
        mask = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
        batch["attention_mask"] = mask.long()
    return batch


def _padded(values: Tensor, length: int, filler: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, length - len(values)), value=filler)


def _named(tokens: np.ndarray, labels: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
    return {"input_ids": tokens, "labels": labels, "position_ids": positions.astype(np.int64)}
