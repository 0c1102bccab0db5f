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


def misfit(gates: Tensor, expert_ids: Tensor, expert_weights: Tensor) -> float:
    """Return by how much, relative to the gates, a token's weights stand otherwise to each other than its gates do.

    Weights may be scaled and renormalised, so one expert a token tells nothing: then the weights must be the gates.

    Args:
        gates: (tokens, experts).
        expert_ids: (tokens, top_k).
        expert_weights: (tokens, top_k).

    Returns:
        The largest over all slots. 0: exactly as the gates; about 2^-8 for weights in bfloat16.
    """
    taken, weights = gates.gather(-1, expert_ids.long()), expert_weights.to(gates.dtype)
    if weights.shape[-1] > 1:
        taken, weights = shares(taken), shares(weights)
    return float(((taken - weights).abs() / taken.clamp(min=1e-4)).detach().max())
