"""How evenly the experts of a layer are used: what locality may cost."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


class LoadSpread(NamedTuple):
    """How far the tokens per expert are from even, one number a layer each."""

    variation: Float[np.ndarray, " layers"]
    busiest: Float[np.ndarray, " layers"]


def utilisation_entropy(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Entropy in bits of which experts a layer uses, all slots of all tokens pooled.

        entropy[l] = -sum_e p[e] log2 p[e],   p[e] = tokens_per_expert[e] / sum of tokens_per_expert

    Pooled over the whole trace: a router that keeps one expert for a sequence and then changes still scores high.

    Returns:
        One number a layer in [0, log2(num_experts)]. 0: one expert does everything; log2(num_experts): all do the same.

    Source: Sticky Routing, eq. 20.
    """
    return np.array([_entropy_bits(_used(trace, layer)) for layer in range(trace.num_layers)])


def load_spread(trace: RoutingTrace) -> LoadSpread:
    """Coefficient of variation of tokens per expert, and the busiest expert's load over the mean.

        variation[l] = std_e(tokens_per_expert) / mean_e(tokens_per_expert)      (over all experts, used or not)
        busiest[l]   = max_e(tokens_per_expert) / mean_e(tokens_per_expert)

    Returns:
        `variation` in [0, sqrt(num_experts - 1)], `busiest` in [1, num_experts]; the low ends mean an even load, the
        high ends one expert for everything.
    """
    spreads = [_spread(_used(trace, layer), trace.num_experts) for layer in range(trace.num_layers)]
    return LoadSpread(np.array([variation for variation, _ in spreads]), np.array([busiest for _, busiest in spreads]))


def _used(trace: RoutingTrace, layer: int) -> Int[np.ndarray, " used"]:
    # Only experts that were used: num_experts may be far larger than any array of counts should be.
    ids = trace.expert_ids[:, layer]
    counts: np.ndarray = np.unique(ids[ids != UNASSIGNED], return_counts=True)[1]
    return counts


def _entropy_bits(counts: Int[np.ndarray, " used"]) -> float:
    share = counts / counts.sum()
    return float(max(0.0, -(share * np.log2(share)).sum()))


def _spread(counts: Int[np.ndarray, " used"], num_experts: int) -> tuple[float, float]:
    mean = counts.sum() / num_experts
    squares = ((counts - mean) ** 2).sum() + (num_experts - counts.size) * mean**2
    return float(np.sqrt(squares / num_experts) / mean), float(counts.max() / mean)
