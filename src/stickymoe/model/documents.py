"""Packed documents: which tokens may see which, and where each position starts anew.

A document begins where the id differs from that of the real token before. Ids at padding mean nothing.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def documents_by_position(position_ids: Int[Tensor, "batch seq"]) -> Int[Tensor, "batch seq"]:
    """Number the documents of rows packed by positions alone: a new one where a position does not follow its left."""
    starts = torch.zeros_like(position_ids)
    starts[:, 1:] = position_ids[:, 1:] != position_ids[:, :-1] + 1
    return starts.cumsum(dim=1)


def positions_in_documents(
    token_mask: Bool[Tensor, "batch seq"] | None, document_ids: Int[Tensor, "batch seq"]
) -> Int[Tensor, "batch seq"]:
    """Count each real token's position from the first real token of its document; padding may get any in range."""
    real = torch.ones_like(document_ids) if token_mask is None else token_mask.to(document_ids.dtype)
    before = real.cumsum(dim=1) - real
    at_start = torch.where(document_starts(token_mask, document_ids), before, 0).cummax(dim=1).values
    return before - at_start


def document_mask(
    token_mask: Bool[Tensor, "batch seq"] | None, document_ids: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch 1 seq seq"]:
    """Allow each token the real tokens of its own document up to itself, and every token itself."""
    seq = document_ids.shape[1]
    numbers = document_starts(token_mask, document_ids).cumsum(dim=1)
    allowed = numbers[:, :, None] == numbers[:, None, :]
    if token_mask is not None:
        allowed &= token_mask[:, None, :]
    # A row without any allowed key, as padding's would be, is NaN in some kernels
    allowed |= torch.eye(seq, dtype=torch.bool, device=document_ids.device)
    return allowed.tril()[:, None]


def document_starts(
    token_mask: Bool[Tensor, "batch seq"] | None, document_ids: Int[Tensor, "batch seq"]
) -> Bool[Tensor, "batch seq"]:
    """Mark every token whose document id differs from that of the last real token before it."""
    ids = document_ids
    if token_mask is not None:
        # Padding takes over the id of the real token before it, and so begins nothing
        places = torch.arange(ids.shape[1], device=ids.device)
        ids = ids.gather(1, torch.where(token_mask, places, 0).cummax(dim=1).values)
    starts = torch.zeros_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return starts
