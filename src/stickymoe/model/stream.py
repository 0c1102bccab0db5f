"""The tokens around a token: how many real ones stand before it, where its document begins, what was kept of the past.

Everything here counts real tokens only, so padding on either side and a cache change no answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from stickymoe.model.documents import document_starts

NEVER = -(2**30)


@dataclass(frozen=True, eq=False)
class TokenStream:
    """One forward pass as a router sees it beside the hidden states.

    Attributes:
        like: Any tensor whose first two axes are (batch, seq), on the device of the pass.
        token_ids: The tokens of this call; None where embeddings were given.
        token_mask: True where a token of this call is real; None where all are.
        document_ids: Documents packed in the rows; None where each row is one. Never together with `past`.
        past: What was kept of each token of earlier calls, -1 at padding; None at the start of a sequence.
    """

    like: Tensor
    token_ids: Int[Tensor, "batch seq"] | None = None
    token_mask: Bool[Tensor, "batch seq"] | None = None
    document_ids: Int[Tensor, "batch seq"] | None = None
    past: Int[Tensor, "batch past facts"] | None = None

    @property
    def ranks(self) -> Int[Tensor, "rows seq"]:
        """How many real tokens of this call stand before each token; one row where all rows are alike."""
        if self.token_mask is None:
            return torch.arange(self.like.shape[1], device=self.like.device)[None]
        real = self.token_mask.long()
        return real.cumsum(dim=1) - real

    @property
    def document_ranks(self) -> Int[Tensor, "rows seq"] | None:
        """The rank of the first token of each token's document; None where each row is one document."""
        if self.document_ids is None:
            return None
        starts = document_starts(self.token_mask, self.document_ids)
        return torch.where(starts, self.ranks, 0).cummax(dim=1).values

    def last_kept(self, count: int) -> Int[Tensor, "batch count facts"] | None:
        """Return what was kept of the last `count` real tokens of earlier calls, the latest last, -1 for too few."""
        if self.past is None:
            return None
        batch, past, facts = self.past.shape
        places = torch.arange(past, device=self.past.device)
        found = torch.where(self.past[..., 0] >= 0, places, -1).topk(min(count, past), dim=1).values.flip(1)
        kept = self.past.gather(1, found.clamp(min=0)[..., None].expand(-1, -1, facts))
        kept = torch.where(found[..., None] >= 0, kept, -1)
        return torch.cat([kept.new_full((batch, count - found.shape[1], facts), -1), kept], dim=1)

    def span_starts(self, span: int) -> Int[Tensor, "batch seq"]:
        """Return the id of the first token of each token's span: of `span` tokens, or of the whole document at 0.

        Spans begin with the document, so their first token may lie in an earlier call. At padding any id may stand.
        """
        assert self.token_ids is not None
        if span == 1:
            return self.token_ids
        real = torch.ones_like(self.token_ids, dtype=torch.bool) if self.token_mask is None else self.token_mask
        tokens = self.token_ids
        if self.past is not None:
            tokens = torch.cat([self.past[..., 0].to(tokens.dtype), tokens], dim=1)
            real = torch.cat([self.past[..., 0] >= 0, real], dim=1)
        positions = real.long().cumsum(dim=1) - 1
        document_ranks = self.document_ranks
        if document_ranks is not None:
            positions = positions - document_ranks
        first = positions % span == 0 if span else positions == 0
        places = torch.arange(tokens.shape[1], device=tokens.device)
        starts = torch.where(first & real, places, 0).cummax(dim=1).values
        return tokens.gather(1, starts)[:, -self.token_ids.shape[1] :]

    def real_only(self, values: Int[Tensor, "batch seq facts"]) -> Int[Tensor, "batch seq facts"]:
        """Return `values` with -1 at padding, as they are kept for later calls."""
        return values if self.token_mask is None else torch.where(self.token_mask[..., None], values, -1)


def real_tokens(attention_mask: Tensor | None, batch: int, past: int, seq: int) -> Bool[Tensor, "batch seq"] | None:
    """Return which tokens of this call are real; None where all are.

    A static cache makes `generate` pass a mask for each query and key: there a token is real if it may see itself.
    """
    if attention_mask is None:
        return None
    if attention_mask.ndim == 2:
        return attention_mask[:, -seq:].bool()
    may_see = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
    return may_see[:, 0].diagonal(offset=past, dim1=1, dim2=2).expand(batch, seq)
