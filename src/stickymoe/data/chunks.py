"""Chunks of T tokens for training and evaluation, and how a batch is made of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from stickymoe.core.errors import DataError
from stickymoe.core.settings import require_at_least
from stickymoe.data.corpus import TokenSplit

IGNORED = -100


class TokenChunks(Dataset[dict[str, Tensor]]):
    """A split cut into chunks of `seq_len` tokens, each with the tokens that follow as targets.

        chunk i:  input_ids = tokens[i*T : (i+1)*T],  shift_labels = tokens[i*T + 1 : (i+1)*T + 1]

    So the last token of a chunk predicts the first of the next, and targets run on across documents: `document_ids`
    are for attention and for pairs of neighbouring tokens. Order is the sampler's affair.

    Args:
        split: The tokens.
        seq_len: T, at least 1.
        respect_documents: Whether rows carry `document_ids`, numbered as in the split.
        pair_borders: Whether rows carry them as `pair_document_ids` instead where attention runs on across documents:
            for the objective alone, whose pairs and windows then end at their borders.
        keep_tail: Whether the last, shorter chunk counts too; then every token but the first is predicted exactly once.

    Raises:
        SettingError: `seq_len` below 1.
        DataError: The split is shorter than one chunk.

    Source: Sticky Routing, section 5.1.
    """

    def __init__(
        self,
        split: TokenSplit,
        seq_len: int,
        *,
        respect_documents: bool = True,
        pair_borders: bool = False,
        keep_tail: bool = False,
    ) -> None:
        """Cut `split`."""
        require_at_least("seq_len", seq_len, 1)
        needed = 2 if keep_tail else seq_len + 1
        if split.num_tokens < needed:
            raise DataError(
                f"a corpus split must have >= {needed} tokens for one chunk of seq_len {seq_len} and its last target, "
                f"got {split.num_tokens}; lower seq_len or give more text"
            )
        self.split = split
        self.seq_len = seq_len
        self.respect_documents = respect_documents
        self.pair_borders = pair_borders and not respect_documents
        targets = split.num_tokens - 1
        self._num_chunks = -(-targets // seq_len) if keep_tail else targets // seq_len

    def __len__(self) -> int:
        """Return the number of chunks."""
        return self._num_chunks

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return chunk `index` as int64 tensors."""
        if not -self._num_chunks <= index < self._num_chunks:
            raise IndexError(f"chunk must be in [0, {self._num_chunks}), got {index}")
        begin = index % self._num_chunks * self.seq_len
        end = min(begin + self.seq_len, self.split.num_tokens - 1)
        row = {
            "input_ids": torch.from_numpy(self.split.tokens[begin:end].astype("int64")),
            "shift_labels": torch.from_numpy(self.split.tokens[begin + 1 : end + 1].astype("int64")),
        }
        if self.respect_documents or self.pair_borders:
            name = "document_ids" if self.respect_documents else "pair_document_ids"
            row[name] = torch.from_numpy(self.split.document_ids[begin:end].astype("int64"))
        return row


def collate_chunks(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Stack rows to (batch, seq).

    Only where rows differ in length is there padding, on the right: token 0, target -100, the row's last document, and
    an `attention_mask` (1 = real). Document ids are left out when no row has a border in it: they then say nothing.
    """
    longest = max(len(row["input_ids"]) for row in rows)
    short = [longest - len(row["input_ids"]) for row in rows]
    batch = {
        "input_ids": _stack([row["input_ids"] for row in rows], short, 0),
        "shift_labels": _stack([row["shift_labels"] for row in rows], short, IGNORED),
    }
    if any(short):
        batch["attention_mask"] = _stack([torch.ones_like(row["input_ids"]) for row in rows], short, 0)
    for name in ("document_ids", "pair_document_ids"):
        documents = [row[name] for row in rows if name in row]
        if any(bool((ids != ids[0]).any()) for ids in documents):
            padded = [torch.cat([ids, ids[-1:].expand(pad)]) for ids, pad in zip(documents, short, strict=True)]
            batch[name] = torch.stack(padded)
    return batch


def _stack(rows: list[Tensor], short: list[int], filler: int) -> Tensor:
    padded = [torch.nn.functional.pad(row, (0, pad), value=filler) for row, pad in zip(rows, short, strict=True)]
    return torch.stack(padded)
