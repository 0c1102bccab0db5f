"""The consistency loss: neighbouring tokens should have the same gates."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from stickymoe.losses.sums import Sums, add_up, keep_only, mean_of
from stickymoe.losses.term import Term


def consistency_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    valid_pairs: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None = None,
) -> Float[Tensor, ""]:
    """Mean squared distance between the gates of neighbouring tokens.

        loss = mean over pairs (t-1, t) of  sum_e (g[t, e] - g[t-1, e])^2

    Flat gates score as well as sticky ones: read it beside the switch rate.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        valid_pairs: Which pairs count, or their weights w in [0, 1], giving sum(w d) / sum(w); all fully if not given.

    Returns:
        Scalar in [0, 2], float32. 0: every token repeats its predecessor's gates, or no pair counts. 2: one-hot gates
        that always switch.

    Source: Sticky Routing, eq. 9 and 10.
    """
    return mean_of(consistency_sums(gate_probs, valid_pairs))


def consistency_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    valid_pairs: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None,
) -> Sums:
    """Sum the squared distances of the pairs that count, for each layer."""
    gates = gate_probs.float()
    change = keep_only(gates[..., 1:, :] - gates[..., :-1, :], valid_pairs)
    return add_up(change.square().sum(dim=-1), valid_pairs)


TERM = Term(
    name="consistency",
    sums=lambda stack: consistency_sums(stack.gate_probs, stack.pair_weights),
    over="pairs",
)
