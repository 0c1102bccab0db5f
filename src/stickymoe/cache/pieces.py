"""Replay of a trace that comes in pieces: caches and policies go on from one piece to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.capacity import MOST_BLOCKS, checked_capacity, layout_of
from stickymoe.cache.order import Order, order_of, pass_begins
from stickymoe.cache.pools import feed
from stickymoe.cache.profile import ProfileSource
from stickymoe.cache.replay_kernel import COLD, SAME, SEQUENCE
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import Simulation
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


def simulate_pieces(
    pieces: Iterable[RoutingTrace],
    settings: CacheSettings,
    capacity: int | float | None,
    capacity_bytes: int | None,
    profile: ProfileSource,
    expert_bytes: int | Sequence[int] | np.ndarray | None,
) -> CacheReport:
    """Replay the pieces of one trace in memory for one piece; see `simulate`."""
    _check_online(settings, profile)
    simulation, pools = None, []
    for trace, order in _ordered(pieces, settings):
        if simulation is None:
            if trace.num_layers * trace.num_experts > MOST_BLOCKS:
                found = f"{trace.num_layers} layers of {trace.num_experts} experts"
                raise TraceError(f"a trace in pieces must have at most {MOST_BLOCKS} experts in all, got {found}")
            layout = layout_of(trace, expert_bytes)
            budget = checked_capacity(capacity, capacity_bytes, settings, layout)
            simulation = Simulation(settings, budget, layout, trace, profile)
            pools = [simulation.pool(number) for number in simulation.pools]
        simulation.top_k = max(simulation.top_k, trace.top_k)
        piece = simulation.piece(trace, order)
        for pool in pools:
            feed([pool], piece)
    if simulation is None:
        raise TraceError("a trace must have at least one token, got no piece of it")
    simulation.counts = np.concatenate([pool.counts for pool in pools], axis=1)
    return simulation.report()


def _check_online(settings: CacheSettings, profile: ProfileSource) -> None:
    way_out = "load the trace whole"
    if settings.factory is not None or "future" in settings.kind.needs:
        rule = "an online policy of POLICIES, for a trace in pieces"
        raise SettingError.broken("cache.policy", rule, settings.policy, way_out)
    if settings.batch > 1:
        raise SettingError.broken("cache.batch", "1 for a trace in pieces", settings.batch, way_out)
    if "profile" in settings.kind.needs and (profile is None or isinstance(profile, float)):
        rule = "another trace or a usage profile, for a trace in pieces"
        raise SettingError.broken("cache.profile", rule, profile, way_out)


def _ordered(pieces: Iterable[RoutingTrace], settings: CacheSettings) -> Iterator[tuple[RoutingTrace, Order]]:
    """Yield whole events; the last forward pass of a piece waits for the next piece, which may go on with it."""
    first: RoutingTrace | None = None
    waiting: RoutingTrace | None = None
    before: Any = None
    for number, trace in enumerate(pieces):
        first = first or trace
        _require_alike(first, trace, number)
        whole: RoutingTrace | None = trace
        if settings.prefill == "pass":
            whole, waiting = _cut(trace if waiting is None else _joined(waiting, trace))
        if whole is not None:
            yield whole, _order_after(whole, before, settings)
            before = whole.sequence_ids[-1]
    if waiting is not None:
        yield waiting, _order_after(waiting, before, settings)


def _order_after(trace: RoutingTrace, before: Any, settings: CacheSettings) -> Order:
    order = order_of(trace, settings)
    if before is not None:
        new = COLD if settings.reset == "sequence" else SEQUENCE
        order.heads[0] = SAME if trace.sequence_ids[0] == before else new
    return order


def _cut(trace: RoutingTrace) -> tuple[RoutingTrace | None, RoutingTrace]:
    """Cut before the last pass, or before an earlier one where either side would be a trace of nobody."""
    begins = pass_begins(trace)
    begins[trace.sequence_starts()[:-1]] = True
    routed = np.flatnonzero((trace.expert_ids[:, :, 0] != UNASSIGNED).any(axis=1))
    cuts = np.flatnonzero(begins)
    cuts = cuts[(cuts > routed[0]) & (cuts <= routed[-1])]
    if not cuts.size:
        return None, trace
    return _rows(trace, slice(0, cuts[-1])), _rows(trace, slice(cuts[-1], None))


def _rows(trace: RoutingTrace, rows: slice) -> RoutingTrace:
    def part(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[rows]

    return RoutingTrace(
        trace.expert_ids[rows],
        trace.sequence_ids[rows],
        trace.num_experts,
        expert_weights=part(trace.expert_weights),
        phases=part(trace.phases),
        event_ids=part(trace.event_ids),
        expert_bytes=trace.expert_bytes,
    )


def _joined(waiting: RoutingTrace, trace: RoutingTrace) -> RoutingTrace:
    return RoutingTrace.concat([waiting, _rows(trace, slice(None))], join_sequences=True)


def _require_alike(first: RoutingTrace, trace: RoutingTrace, number: int) -> None:
    for what in ("num_layers", "num_experts"):
        if getattr(trace, what) != getattr(first, what):
            found = f"{getattr(trace, what)} against {getattr(first, what)}"
            raise TraceError(f"piece {number} must have the {what} of the first piece, got {found}")
    if (trace.expert_weights is None) != (first.expert_weights is None) or (trace.phases is None) != (
        first.phases is None
    ):
        raise TraceError(f"piece {number} must know weights and phases where the first piece does, and only there")
