"""Fit a split of slots over layers on half of a trace, and judge it on the other half."""

from dataclasses import replace
from typing import Any

import numpy as np

from stickymoe.cache.allocation.report import AllocationReport
from stickymoe.cache.allocation.split import MissCurves, best_split, best_split_of_bytes, equal_split, misses_of
from stickymoe.cache.capacity import layout_of
from stickymoe.cache.curve import hit_rate_curve
from stickymoe.cache.simulating import simulate
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


def allocate(
    trace: RoutingTrace,
    slots: int | None = None,
    *,
    budget_bytes: int | None = None,
    expert_bytes: Any = None,
    held_out: RoutingTrace | None = None,
    policy: str = "lru",
    at_least: int = 1,
    **semantics: Any,
) -> AllocationReport:
    """Divide a budget over the layers so that misses are fewest, and see what that is worth on other sequences.

    Per-layer caches do not disturb each other, so what each layer misses with each number of slots decides everything,
    and the best split of slots is exact. It is fitted to every other sequence and judged on those between; a trace of
    one sequence is cut in half.

    Args:
        trace: The routing.
        slots: To divide, all layers together; or else
        budget_bytes: Bytes to divide; then the bytes loaded are made fewest, not the misses.
        expert_bytes: Bytes of one expert, or of one of each layer; as the trace says if not given.
        held_out: Judge on this trace, and fit on all of `trace`.
        policy: A name of `POLICIES`.
        at_least: Slots every layer gets.
        **semantics: As `simulate` takes them, but for `scope`.

    Raises:
        SettingError: A setting breaks its rule, or the trace is too short to hold anything out.
        TraceError: The held-out trace is of another model.
    """
    if (slots is None) == (budget_bytes is None):
        raise SettingError.broken("allocation", "given slots or budget_bytes, one of them", (slots, budget_bytes))
    if "scope" in semantics:
        raise SettingError.broken("allocation.scope", "left out, the split is by layer", semantics["scope"])
    fitted, judged, told = _parts(trace, held_out)
    curves, judged_curves = (miss_curves(part, policy, **semantics) for part in (fitted, judged))
    if slots is not None:
        found, hindsight = (best_split(each, slots, at_least=at_least) for each in (curves, judged_curves))
        equal = equal_split(trace.num_layers, slots, trace.num_experts)
        pooled: dict[str, Any] = {"capacity": slots}
    else:
        sizes, budget = layout_of(trace, expert_bytes).expert_bytes, budget_bytes or 0
        if sizes is None:
            raise SettingError("allocation.budget_bytes needs expert_bytes, the trace does not know them; give them")
        found, hindsight = (
            best_split_of_bytes(each, budget, sizes, at_least=at_least) for each in (curves, judged_curves)
        )
        equal = np.minimum(budget // trace.num_layers // sizes, trace.num_experts)
        pooled = {"capacity_bytes": budget}
        judged = replace(judged, expert_bytes=sizes)
    pool = simulate(judged, policy, scope="model", **pooled, **semantics)
    ways = {"split": found, "equal": equal}
    counted = {key: pool.semantics[key] for key in ("policy", "accesses", "replay", "prefill", "count", "reset")}
    return AllocationReport(
        found,
        equal,
        {way: int(misses_of(curves, split).sum()) for way, split in ways.items()},
        {way: int(misses_of(judged_curves, split).sum()) for way, split in (ways | {"hindsight": hindsight}).items()}
        | {"pool": pool.misses},
        pool.lookups,
        counted | {"slots": slots, "budget_bytes": budget_bytes, "at_least": at_least} | told,
    )


def miss_curves(trace: RoutingTrace, policy: str = "lru", **semantics: Any) -> MissCurves:
    """Return the misses of each layer with 0, 1, 2, ... slots, up to all experts that any layer uses.

    With no slot every lookup is a miss.
    """
    most = max(np.unique(ids[ids != UNASSIGNED]).size for ids in trace.expert_ids.transpose(1, 0, 2))
    reports = hit_rate_curve(trace, policy, range(1, most + 1), scope="layer", **semantics)
    none = reports[0].hits_per_layer + reports[0].misses_per_layer
    return np.stack([none, *(report.misses_per_layer for report in reports)], axis=1)


def _parts(trace: RoutingTrace, held_out: RoutingTrace | None) -> tuple[RoutingTrace, RoutingTrace, dict[str, str]]:
    """Return what to fit on, what to judge on, and words for both."""
    if held_out is not None:
        shape, other = (trace.num_layers, trace.num_experts), (held_out.num_layers, held_out.num_experts)
        if shape != other:
            raise TraceError(f"the held-out trace must have the layers and experts of the trace, {shape}, got {other}")
        return trace, held_out, {"fitted_on": "the whole trace", "judged_on": "another trace"}
    ids = trace.sequence_ids[trace.sequence_starts()[:-1]].tolist()
    if len(ids) > 1:
        told = {"fitted_on": f"{(len(ids) + 1) // 2} sequences", "judged_on": f"the {len(ids) // 2} between them"}
        return trace.select(sequences=ids[::2]), trace.select(sequences=ids[1::2]), told
    if trace.num_tokens < 2:
        raise SettingError.broken("allocation", "given a trace of at least 2 tokens to hold some out", trace.num_tokens)
    half = trace.num_tokens // 2
    numbered = replace(trace, sequence_ids=(np.arange(trace.num_tokens) >= half).astype(np.int64))
    told = {"fitted_on": f"the first {half} tokens", "judged_on": "those after them"}
    return numbered.select(sequences=[0]), numbered.select(sequences=[1]), told
