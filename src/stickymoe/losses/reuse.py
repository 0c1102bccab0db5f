"""The reuse loss: a token's gates should lie on the experts that served the token before it."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.losses.sums import Sums, add_up, is_counted, keep_only
from stickymoe.losses.term import LayerStack, Term, stack_layers

_FLOOR = 1e-8


def reuse_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    expert_ids: Int[Tensor, "batch seq top_k"],
    valid_pairs: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None = None,
) -> Float[Tensor, ""]:
    """Negative logarithm of the mean gate on the previous token's experts.

        loss = -log( mean over pairs (t-1, t) of  1/k * sum_{e in E[t-1]} g[t, e]  + 1e-8 )

    The logarithm stands outside the mean, so the mean over micro-batches is not the value of them together: under
    gradient accumulation each micro-batch has its own. Only g[t] carries gradient; the chosen sets are given.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        expert_ids: The experts that served each token, from 0 to N-1 wherever the token is real.
        valid_pairs: Which pairs count, or their weights in [0, 1]; all fully if not given.

    Returns:
        Scalar in [log k, -log 1e-8], float32. log k: all gate mass lies on the previous token's experts. It is 0, below
        that range, where no pair counts.

    Source: ReMoE, reuse mass.
    """
    return reuse_value(reuse_sums(gate_probs, expert_ids, valid_pairs))


def reuse_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    expert_ids: Int[Tensor, "*layers batch seq top_k"],
    valid_pairs: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None,
) -> Sums:
    """Sum the mean gate on the previous token's experts over the pairs that count, for each layer."""
    previous = expert_ids[..., :-1, :].long()
    if valid_pairs is not None:
        previous = torch.where(is_counted(valid_pairs)[..., None], previous, 0)
    gates = gate_probs[..., 1:, :].gather(-1, previous).float()
    return add_up(keep_only(gates, valid_pairs).mean(dim=-1), valid_pairs)


def reuse_value(sums: Sums) -> Tensor:
    """Turn the sums into a value for each layer; 0 with gradient 0 where no pair counted."""
    anything = sums.weight > 0
    share = torch.where(anything, sums.total, 1.0) / torch.where(anything, sums.weight, 1.0)
    return torch.where(anything, -(share + _FLOOR).log(), 0.0)


def _sums_of_stack(stack: LayerStack) -> Sums:
    expert_ids = stack_layers(stack.routing.expert_ids, "routing.expert_ids")
    return reuse_sums(stack.gate_probs, expert_ids, stack.pair_weights)


TERM = Term(name="reuse", sums=_sums_of_stack, over="pairs", value=reuse_value, additive=False)
