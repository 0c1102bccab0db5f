"""LRU at many capacities in one pass: a larger cache holds all that a smaller one holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stickymoe.cache.capacity import Layout
from stickymoe.cache.distance_kernel import add_distances
from stickymoe.cache.order import order_of
from stickymoe.cache.pools import Piece
from stickymoe.cache.ranks_kernel import MOST_EXPERTS, add_ranks, new_ranks
from stickymoe.cache.replay_kernel import COLD
from stickymoe.cache.settings import CacheSettings
from stickymoe.cache.simulation import Simulation, replay_together
from stickymoe.metrics.reuse_kernel import distances, new_recency
from stickymoe.traces import RoutingTrace


def count_whole(simulations: Sequence[Simulation], trace: RoutingTrace) -> None:
    """Count a whole trace for simulations that differ in capacity alone: in one pass where it tells, else by replay."""
    if alone := _count_lru(simulations, trace):
        replay_together(alone, trace)


def _count_lru(simulations: Sequence[Simulation], trace: RoutingTrace) -> list[Simulation]:
    """Fill in the counts that one pass tells, and return the simulations that have to be replayed instead.

    The number of experts used since an expert's last use tells which capacities hit. It does not tell of a cache
    smaller than the largest event where that is never split (`admission="whole"`), nor of a pool of bytes that experts
    of different size share; and for one pool of all layers a pass over distances takes longer than one replay.
    """
    settings, layout = simulations[0].settings, simulations[0].layout
    by_slots = [each for each in simulations if each.capacity.slots is not None]
    ranked = not settings.pooled and layout.experts <= MOST_EXPERTS
    if settings.policy != "lru" or settings.factory is not None or not by_slots:
        return list(simulations)
    if not ranked and len(simulations) == 1:
        return list(simulations)
    piece = Piece.of(trace, order_of(trace, settings), settings, False)
    if ranked:
        small = _count_by_rank(piece, by_slots)
    else:
        small = {place for number in simulations[0].pools for place in _count_pool(piece, by_slots, number)}
    told = [each for place, each in enumerate(by_slots) if place not in small]
    return [each for each in simulations if not any(each is other for other in told)]


def _count_by_rank(piece: Piece, simulations: Sequence[Simulation]) -> set[int]:
    """Count a cache a layer, all layers together; return the places of the simulations whose counts are wrong."""
    settings, layout = simulations[0].settings, simulations[0].layout
    layers, experts = layout.layers, layout.experts
    lookups, loads = (np.zeros((layers, 2, experts + 1), dtype=np.int64) for _ in range(2))
    ranks, asked_by = new_ranks(layers, experts), np.empty((layers, experts), dtype=np.int64)
    largest = np.ones(layers, dtype=np.int64)
    unique = settings.count == "unique"
    for requests in piece.chunks(slice(None), 0, piece.order.groups.size - 1):
        add_ranks(ranks, requests, experts, settings.sequential, unique, asked_by, lookups, loads, largest)
    if settings.sequential:
        loads = lookups
    small = set()
    for place, each in enumerate(simulations):
        slots = np.minimum(np.asarray(each.capacity.budgets, dtype=np.int64), experts)
        hits, kept = _below(lookups, slots), _below(loads, slots)
        each.counts[:] = (hits, lookups.sum(axis=2) - hits, lookups[..., -1], loads.sum(axis=2) - kept)
        if settings.admits == "whole" and (slots < largest).any():
            small.add(place)
    return small


def _below(histogram: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return how many of each layer and phase lie below the layer's slots."""
    within = np.arange(histogram.shape[2]) < slots[:, None]
    counts: np.ndarray = (histogram * within[:, None]).sum(axis=2)
    return counts


def _count_pool(piece: Piece, simulations: Sequence[Simulation], number: int) -> set[int]:
    """Count one pool; return the places of the simulations whose counts are wrong."""
    settings, layout = simulations[0].settings, simulations[0].layout
    layers = slice(None) if settings.pooled else slice(number, number + 1)
    slots = [each.capacity.budgets[number] for each in simulations]
    counts, largest = _counts_by_distance(piece, slots, layers, layout, settings)
    for place, each in enumerate(simulations):
        each.counts[:, layers] = counts[place]
    return {place for place, size in enumerate(slots) if size < largest} if settings.admits == "whole" else set()


def _counts_by_distance(
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
