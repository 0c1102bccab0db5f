"""The trust loss: a router in training should not stray far from the one it started as."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.core.errors import SettingError
from stickymoe.losses.sums import Sums, add_up, keep_only, mean_of
from stickymoe.losses.term import LayerStack, Term, stack_layers

# Gates below it count as it: an expert that underflowed must not make the divergence infinite
_SMALLEST = torch.finfo(torch.float32).tiny


def trust_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    reference_probs: Float[Tensor, "batch seq experts"],
    token_mask: Bool[Tensor, "batch seq"] | None = None,
) -> Float[Tensor, ""]:
    """Mean Kullback-Leibler divergence of the gates from those of the frozen starting router, in nats.

        loss = mean over real tokens of  sum_e g[t, e] (log g[t, e] - log r[t, e])

    Both routers see the same hidden state, that of the model in training: what earlier layers change is not held
    against a layer. Only g carries gradient.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        reference_probs: The frozen router's gates for the same hidden states.
        token_mask: True where a token is real; all are if not given.

    Returns:
        Scalar >= 0, float32. 0: the router gates as it did at the start, or no token is real.

    Source: ReMoE, trust region. Its weight, lambda_KL, is open in what we know of the paper.
    """
    return mean_of(trust_sums(gate_probs, reference_probs, token_mask))


def trust_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    reference_probs: Float[Tensor, "*layers batch seq experts"],
    token_mask: Bool[Tensor, "batch seq"] | None,
) -> Sums:
    """Sum the divergences of the real tokens, for each layer."""
    gates = keep_only(gate_probs.float(), token_mask)
    reference = keep_only(reference_probs.detach().float(), token_mask)
    with torch.no_grad():
        ratio = gates.clamp(min=_SMALLEST).log() - reference.clamp(min=_SMALLEST).log()
    # The derivative of g log(g/r) is log(g/r) + 1; written so, the ratio alone is kept for the backward pass
    return add_up((gates * ratio + (gates - gates.detach())).sum(dim=-1), token_mask)


def _sums_of_stack(stack: LayerStack) -> Sums:
    reference = stack.routing.reference_probs
    if reference is None:
        raise SettingError(
            "objective.trust must be used with routing.reference_probs, the frozen router's gates, got none; "
            "`stickymoe tune` supplies them, or set objective.trust to 0"
        )
    return trust_sums(stack.gate_probs, stack_layers(reference, "routing.reference_probs"), stack.token_mask)


TERM = Term(name="trust", sums=_sums_of_stack, over="tokens", locality=False)
