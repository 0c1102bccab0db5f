"""How often neighbouring tokens change experts, layer by layer."""

import numpy as np
from jaxtyping import Float

from stickymoe.core.settings import require_at_least
from stickymoe.metrics.pairs_kernel import OVERLAP, PAIRS, SET_SWITCHES, SWITCHES, pair_sums
from stickymoe.metrics.rows import layer_ids, run_starts
from stickymoe.metrics.tally import Figure, Tally, by_layer, ratio
from stickymoe.metrics.units import Units
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED

NEIGHBOURS = "at least one pair of neighbouring tokens of one sequence and document"
SWITCH_RATE = Figure("switch_rate", lambda sums: ratio(sums[..., SWITCHES], sums[..., PAIRS]), NEIGHBOURS)
SET_SWITCH_RATE = Figure("set_switch_rate", lambda sums: ratio(sums[..., SET_SWITCHES], sums[..., PAIRS]), NEIGHBOURS)
EXPERT_OVERLAP = Figure("expert_overlap", lambda sums: ratio(sums[..., OVERLAP], sums[..., PAIRS]), NEIGHBOURS)


def switch_rate(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Share of neighbouring tokens whose top-1 expert differs.

        rate[l] = #{pairs (t-1, t): top1[t, l] != top1[t-1, l]} / #pairs

    Blind to the other k - 1 experts: with top-2 a low switch rate can hide a busy second slot.

    Returns:
        One number a layer in [0, 1]. 0: one expert serves each run of neighbours; 1: every token switches.

    Raises:
        TraceError: Some layer served no two neighbours, so there is nothing to divide by.

    Source: Sticky Routing, eq. 18.
    """
    return by_layer(trace, pairs(1), SWITCH_RATE)


def set_switch_rate(trace: RoutingTrace) -> Float[np.ndarray, " layers"]:
    """Share of neighbouring tokens whose expert sets differ, whatever the order of their slots.

    Returns:
        One number a layer in [0, 1]. 0: neighbours always share all k experts; 1: never.

    Raises:
        TraceError: Some layer served no two neighbours.

    Source: Sticky Routing, eq. 8.
    """
    return by_layer(trace, pairs(1), SET_SWITCH_RATE)


def expert_overlap(trace: RoutingTrace, lag: int = 1) -> Float[np.ndarray, " layers"]:
    """Mean share of a token's experts that served the token `lag` places before it as well.

        overlap[l] = mean over pairs (t-lag, t) of |E[t] & E[t-lag]| / |E[t]|      (|E[t]| = k where no slot is empty)

    Read it against `chance_overlap`: routing at random overlaps too. With the previous set resident a token fetches
    k * (1 - overlap) experts.

    Args:
        trace: The routing.
        lag: Tokens between the two, >= 1; all between belong to the same sequence and document.

    Returns:
        One number a layer in [0, 1]. 0: nothing is shared; 1: every token's experts were just used.

    Raises:
        SettingError: `lag` is below 1.
        TraceError: Some layer served no two tokens at this distance.
    """
    return by_layer(trace, pairs(lag), overlap_at(lag))


def chance_overlap(trace: RoutingTrace) -> float:
    """Overlap to expect of random routing: k / num_experts, k the mean number of filled slots of a served token."""
    assigned = trace.expert_ids != UNASSIGNED
    return float(np.count_nonzero(assigned) / np.count_nonzero(assigned[..., 0]) / trace.num_experts)


def overlap_at(lag: int) -> Figure:
    """Name what an overlap at this lag needs."""
    if lag == 1:
        return EXPERT_OVERLAP
    return Figure(
        EXPERT_OVERLAP.name, EXPERT_OVERLAP.of, f"at least one pair of tokens {lag} apart in one sequence", reach=lag
    )


def pairs(lag: int) -> Tally:
    """Count pairs of tokens `lag` apart: how many, how many switch, what they share."""
    require_at_least("lag", lag, 1)

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        ids, _ = layer_ids(trace, layer)
        return pair_sums(ids, run_starts(trace), units.of_row, units.count, lag)

    return tally
