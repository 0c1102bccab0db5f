"""How router logits become gates: for every family a distribution over the experts, before top-k."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus


def precise(logits: Tensor) -> Tensor:
    """Return logits in float32 or better: gates of bfloat16 would be rounded twice."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def shares(scores: Tensor) -> Tensor:
    """Divide scores by their sum over the experts.

    The scores of a sigmoid router do not sum to 1; their shares are what such models' own balance losses work on.
    """
    return scores / scores.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: precise(logits).softmax(dim=-1),
    "sigmoid": lambda logits: shares(precise(logits).sigmoid()),
    "sqrtsoftplus": lambda logits: shares(softplus(precise(logits)).sqrt()),
}


def agree(gates: Tensor, expert_ids: Tensor, expert_weights: Tensor, tolerance: float = 2e-2) -> bool:
    """Tell whether weights are the chosen gates, times one factor for all tokens or renormalised to one sum.

    Args:
        gates: (tokens, experts).
        expert_ids: (tokens, top_k).
        expert_weights: (tokens, top_k), in any scale.
        tolerance: Relative; weights in bfloat16 are off by up to 2^-8.
    """
    taken = gates.gather(-1, expert_ids.long())
    weights = expert_weights.to(taken.dtype)
    factor = weights.sum() / taken.sum()
    plain = torch.allclose(weights, taken * factor, rtol=tolerance, atol=1e-6)
    sums = weights.sum(dim=-1, keepdim=True)
    return plain or torch.allclose(weights, shares(taken) * sums.mean(), rtol=tolerance, atol=1e-6)
