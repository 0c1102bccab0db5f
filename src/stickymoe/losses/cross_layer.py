"""The cross-layer loss: a token's gates should be alike in neighbouring layers that share their experts."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.losses.sums import Sums, add_up, keep_only, mean_of
from stickymoe.losses.term import Term, stack_layers


def cross_layer_loss(
    gate_probs_by_layer: Sequence[Float[Tensor, "batch seq experts"]] | Float[Tensor, "layers batch seq experts"],
    token_mask: Bool[Tensor, "batch seq"] | None = None,
    layers_per_pool: int | None = None,
) -> Float[Tensor, ""]:
    """Squared distance between the gates of adjacent layers, summed over layer pairs, averaged over tokens.

        loss = mean over real tokens of  sum_{l < L-1} sum_e (g_l[t, e] - g_{l+1}[t, e])^2

    Expert 3 of one layer and expert 3 of the next are different weights in most models: there the term saves no load.

    Args:
        gate_probs_by_layer: Router softmax before top-k of every layer, in layer order.
        token_mask: True where a token is real; all are if not given.
        layers_per_pool: Only pairs within a block of so many layers count, those that share their experts; all pairs if
            not given.

    Returns:
        Scalar in [0, 2 (L-1)], float32. 0: every layer has the gates of the one before, or there is one layer, or no
        token is real.

    Source: Sticky Routing, eq. 23.
    """
    stacked = gate_probs_by_layer if isinstance(gate_probs_by_layer, Tensor) else stack_layers(gate_probs_by_layer)
    return mean_of(cross_layer_sums(stacked, token_mask, layers_per_pool)).squeeze(0)


def cross_layer_sums(
    gate_probs: Float[Tensor, "layers batch seq experts"],
    token_mask: Bool[Tensor, "batch seq"] | None,
    layers_per_pool: int | None = None,
) -> Sums:
    """Sum the squared distances of the real tokens over the layer pairs: one total for the whole model."""
    gates = gate_probs.float()
    lower = [layer for layer in range(len(gates) - 1) if layers_per_pool is None or (layer + 1) % layers_per_pool]
    if len(lower) < len(gates) - 1:
        change = keep_only(gates[[layer + 1 for layer in lower]] - gates[lower], token_mask)
    else:
        change = keep_only(gates[1:] - gates[:-1], token_mask)
    return add_up(change.square().sum(dim=-1).sum(dim=0, keepdim=True), token_mask)


TERM = Term(
    name="cross_layer",
    sums=lambda stack: cross_layer_sums(stack.gate_probs, stack.token_mask, stack.layers_per_pool),
    over="tokens",
)
