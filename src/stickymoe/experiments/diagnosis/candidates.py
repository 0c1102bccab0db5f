"""Traces that record more experts of a token than served it: the served ones alone, and the others to choose from."""

from __future__ import annotations

import dataclasses

import numpy as np

from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


def served_part(trace: RoutingTrace, served: int) -> RoutingTrace:
    """Return the trace with the `served` heaviest experts of each token, heaviest first.

    Raises:
        SettingError: The trace has no weights to rank by, or fewer slots than that.
    """
    if not 1 <= served <= trace.top_k:
        raise SettingError.broken("served", f"from 1 to the {trace.top_k} slots recorded", served)
    if trace.expert_weights is None:
        rule = "left out for a trace without gate weights, which rank its slots"
        raise SettingError.broken("served", rule, served)
    heaviest = np.where(trace.expert_ids == UNASSIGNED, np.inf, -trace.expert_weights)
    slots = np.argsort(heaviest, axis=-1, kind="stable")[..., :served]

    def taken(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else np.take_along_axis(values, slots, axis=-1)

    return dataclasses.replace(
        trace,
        expert_ids=np.take_along_axis(trace.expert_ids, slots, axis=-1),
        expert_weights=taken(trace.expert_weights),
        resident=taken(trace.resident),
    )


def require_candidates(served: RoutingTrace, candidates: RoutingTrace | None) -> RoutingTrace:
    """Return the trace that has experts to choose from.

    Raises:
        SettingError: There is none; the message says why, and what would have to be recorded.
    """
    if candidates is not None and candidates.top_k > served.top_k:
        return candidates
    weights = "" if served.expert_weights is not None else " and no gate weights"
    raise SettingError(
        f"the trace holds the {served.top_k} experts of a token that served it, no others to choose from{weights}; "
        "record more ranks with their weights and say with --served how many serve"
    )
