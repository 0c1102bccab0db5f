"""Hit rates at many capacities: LRU at all of them in one pass, other policies with what they share done once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.capacity import Layout
from stickymoe.cache.distance_kernel import add_distances
from stickymoe.cache.order import order_of
from stickymoe.cache.pools import Piece
from stickymoe.cache.profile import ProfileSource
from stickymoe.cache.registry import PolicyFactory
from stickymoe.cache.replay_kernel import COLD
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import Simulation, replay_together, simulations_of
from stickymoe.core.errors import SettingError
from stickymoe.metrics.reuse_kernel import distances, new_recency
from stickymoe.traces import RoutingTrace

# The paper's cache hit rate: `hit_rate_curve(trace, "lru", [2], **PAPER_SEMANTICS)`.
PAPER_SEMANTICS: dict[str, Any] = {
    "scope": "layer",
    "accesses": "top1",
    "replay": "sequential",
    "reset": "sequence",
}


def hit_rate_curve(
    trace: RoutingTrace,
    policy: str | PolicyFactory,
    capacities: Iterable[int | float],
    *,
    in_bytes: bool = False,
    profile: ProfileSource = None,
    expert_bytes: int | Sequence[int] | np.ndarray | None = None,
    **semantics: Any,
) -> list[CacheReport]:
    """Count what caches of several capacities would have found, as `simulate` would for each.

    A larger LRU cache holds all that a smaller one holds, so that the number of experts used since an expert's last use
    tells which capacities hit, and one pass tells them all. Two cases are replayed on their own: a cache smaller than
    the largest event where that is never split (`admission="whole"`), and a pool of bytes that experts of different
    size share. For other policies the trace is made ready, and the future found, once.

    Args:
        trace: The routing, whole.
        policy: As for `simulate`, and so all that follows.
        capacities: Slots or shares, in any order.
        in_bytes: The capacities are `capacity_bytes`.
        profile: What a static cache chooses by.
        expert_bytes: Bytes of one expert, or of one of each layer.
        **semantics: As for `simulate`, `options` among them; but a scope that is a split has its capacities already.

    Returns:
        One report a capacity, in the order given.

    Raises:
        SettingError: A setting breaks its rule, or no capacity is given.
    """
    settings = CacheSettings.checked(policy, **semantics)
    if settings.split is not None:
        raise SettingError.broken("cache.scope", "layer or model, for a curve", settings.split)
    sizes = [(None, size) if in_bytes else (size, None) for size in capacities]
    if not sizes:
        raise SettingError.broken("cache.capacities", "at least one capacity", sizes)
    trace, simulations = simulations_of(trace, settings, sizes, profile, expert_bytes)
    alone = simulations if settings.policy != "lru" else _count_lru(simulations, trace)
    if alone:
        replay_together(alone, trace)
    return [each.report() for each in simulations]


def _count_lru(simulations: list[Simulation], trace: RoutingTrace) -> list[Simulation]:
    """Fill in the counts that one pass over reuse distances tells, and return the simulations that it does not."""
    settings, layout = simulations[0].settings, simulations[0].layout
    by_slots = [each for each in simulations if each.capacity.slots is not None]
    if not by_slots or settings.factory is not None:
        return simulations
    piece = Piece.of(trace, order_of(trace, settings), settings, False)
    small: set[int] = set()
    for number in simulations[0].pools:
        layers = slice(None) if settings.pooled else slice(number, number + 1)
        slots = [each.capacity.budgets[number] for each in by_slots]
        counts, largest = _count_pool(piece, slots, layers, layout, settings)
        for place, each in enumerate(by_slots):
            each.counts[:, layers] = counts[place]
        if settings.admits == "whole":
            small |= {place for place, size in enumerate(slots) if size < largest}
    told = [each for place, each in enumerate(by_slots) if place not in small]
    return [each for each in simulations if not any(each is other for other in told)]


def _count_pool(
    piece: Piece, slots: list[int], layers: slice, layout: Layout, settings: CacheSettings
) -> tuple[np.ndarray, int]:
    """Return the counts (capacity, kind, layer, phase) of one pool, and the size of its largest event."""
    count = piece.ids[:0, layers].shape[1]
    blocks = count * layout.experts
    sizes = np.unique(np.minimum(slots, blocks))
    # the smallest capacity that hits is the first above the distance
    place_of = np.searchsorted(sizes, np.arange(blocks), side="right").astype(np.int64)
    lookups, loads = (np.zeros((count, 2, sizes.size + 2), dtype=np.int64) for _ in range(2))
    recency, asked_by, largest = new_recency(blocks), np.empty(blocks, dtype=np.int64), 1
    unique = settings.count == "unique"
    for requests in piece.chunks(layers, 0, piece.order.groups.size - 1):
        found = piece.scratch("distances", requests.ids.size, np.int32).reshape(requests.ids.shape)
        cold, together = requests.heads == COLD, not settings.sequential
        distances(recency, requests.ids, layout.experts, requests.groups, cold, together, found)
        event = add_distances(
            requests, found, asked_by, layout.experts, settings.sequential, unique, place_of, lookups, loads
        )
        largest = max(largest, int(event))
    if settings.sequential:
        loads = lookups
    at = np.searchsorted(sizes, np.minimum(slots, blocks))
    hits, kept = np.cumsum(lookups, axis=2)[..., at], np.cumsum(loads, axis=2)[..., at]
    misses = lookups.sum(axis=2)[..., None] - hits
    compulsory = np.broadcast_to(lookups[..., -1:], hits.shape)
    counts = np.stack([hits, misses, compulsory, loads.sum(axis=2)[..., None] - kept])
    return np.moveaxis(counts, 3, 0), largest
