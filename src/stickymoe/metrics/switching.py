"""How often neighbouring tokens change experts, layer by layer."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from stickymoe.core.errors import TraceError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED

# Takes the expert ids of both tokens of each pair, (pairs, top_k) twice; returns one value a pair.
PairMeasure = Callable[[np.ndarray, np.ndarray], np.ndarray]


def switch_rate(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Share of neighbouring tokens whose top-1 expert differs.

        rate[l] = #{pairs (t-1, t): top1[t, l] != top1[t-1, l]} / #pairs

    Blind to the other k - 1 experts: with top-2 a low switch rate can hide a busy second slot.

    Returns:
        One number a layer in [0, 1]. 0: one expert serves each run of neighbours; 1: every token switches.

    Raises:
        TraceError: No two tokens are neighbours, so there is nothing to divide by.

    Source: Sticky Routing, eq. 18.
    """
    return _mean_over_pairs(trace, "switch rate", lambda before, after: before[:, 0] != after[:, 0])


def set_switch_rate(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Share of neighbouring tokens whose expert sets differ, whatever the order of their slots.

    Returns:
        One number a layer in [0, 1]. 0: neighbours always share all k experts; 1: never.

    Raises:
        TraceError: No two tokens are neighbours.

    Source: Sticky Routing, eq. 8.
    """
    return _mean_over_pairs(trace, "set switch rate", _sets_differ)


def expert_overlap(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Mean share of a token's experts that served the token before it as well.

        overlap[l] = mean over pairs of |E[t] & E[t-1]| / |E[t]|        (|E[t]| = k where no slot is empty)

    Read it against `chance_overlap`: routing at random overlaps too. With the previous set resident a token fetches
    k * (1 - overlap) experts.

    Returns:
        One number a layer in [0, 1]. 0: nothing is shared; 1: every token's experts were just used.

    Raises:
        TraceError: No two tokens are neighbours.
    """
    return _mean_over_pairs(trace, "expert overlap", lambda before, after: _shared(before, after) / _sizes(after))


def chance_overlap(trace: RoutingTrace) -> float:
    """Overlap to expect of random routing: k / num_experts, k the mean number of filled slots of a served token."""
    assigned = trace.expert_ids != UNASSIGNED
    return float(np.count_nonzero(assigned) / np.count_nonzero(assigned[..., 0]) / trace.num_experts)


def _mean_over_pairs(trace: RoutingTrace, name: str, measure: PairMeasure) -> Float[np.ndarray, " layers"]:
    valid = trace.valid_pairs()
    if not valid.any():
        raise TraceError(
            f"{name} needs at least one pair of neighbouring tokens of one sequence and document, got none"
        )
    means = np.empty(trace.num_layers)
    for layer in range(trace.num_layers):
        # One layer at a time: what is held beside the trace stays below one layer's share of it.
        ids = trace.expert_ids[:, layer]
        served = ids[:, 0] != UNASSIGNED
        pairs = np.flatnonzero(valid & served[1:] & served[:-1])
        if not pairs.size:
            raise TraceError(
                f"{name} needs at least one pair of neighbouring tokens, got none that layer {layer} served"
            )
        means[layer] = np.mean(measure(ids[pairs], ids[pairs + 1]), dtype=np.float64)
    return means


def _sizes(sets: Int[np.ndarray, "pairs top_k"]) -> Int[np.ndarray, " pairs"]:
    sizes: np.ndarray = (sets != UNASSIGNED).sum(axis=1)
    return sizes


def _shared(before: Int[np.ndarray, "pairs top_k"], after: Int[np.ndarray, "pairs top_k"]) -> Int[np.ndarray, " pairs"]:
    shared = np.zeros(len(after), dtype=np.int64)
    for slot in range(before.shape[1]):
        expert = before[:, slot : slot + 1]
        shared += ((after == expert) & (expert != UNASSIGNED)).sum(axis=1)
    return shared


def _sets_differ(
    before: Int[np.ndarray, "pairs top_k"], after: Int[np.ndarray, "pairs top_k"]
) -> Bool[np.ndarray, " pairs"]:
    shared = _shared(before, after)
    differ: np.ndarray = (shared != _sizes(before)) | (shared != _sizes(after))
    return differ
