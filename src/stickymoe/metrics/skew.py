"""Why a cache hits: because some experts are popular, or because use follows use."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from stickymoe.core.settings import require_at_least
from stickymoe.metrics.intervals import Resampling
from stickymoe.metrics.popularity import UNRANKED, first_uses, of_others, popularity_ranks, uses
from stickymoe.metrics.reuse import places
from stickymoe.metrics.rows import layer_ids, sequence_firsts
from stickymoe.metrics.tally import Figure, Tally, Value, evaluate, ratio
from stickymoe.metrics.units import Units, units_of
from stickymoe.traces import RoutingTrace

STATIC, HELD_OUT, RECENT, SHUFFLED = range(4)
COMPARED = (
    ("static", STATIC, None),
    ("static_held_out", HELD_OUT, None),
    ("lru", RECENT, None),
    ("lru_shuffled", SHUFFLED, None),
    ("order_gain", RECENT, SHUFFLED),
    ("lru_over_pinning", RECENT, HELD_OUT),
)
SHUFFLE = 0x5EED
# Gains over C / num_experts below this are not worth building a cache for.
SLIGHT = 0.02


@dataclass(frozen=True)
class Locality:
    """Hit rates at one capacity, each explaining a part of the next; all over the same lookups.

    Args:
        capacity: Slots a layer.
        chance: capacity / num_experts, what routing at random would hit.
        static: The capacity most used experts of each layer of this very trace: no fixed choice hits more.
        static_held_out: The same, for each unit learned on the others: what pinning from a profile would hit.
        lru: The capacity most recently used experts of each layer; LRU's hit rate where capacity >= k.
        lru_shuffled: The same after shuffling the tokens within each sequence: what remains without order.
        order_gain: lru - lru_shuffled: worth of the order of tokens.
        lru_over_pinning: lru - static_held_out: above 0, recency beats pinning.
    """

    capacity: int
    chance: float
    static: Value
    static_held_out: Value
    lru: Value
    lru_shuffled: Value
    order_gain: Value
    lru_over_pinning: Value

    @property
    def order_share(self) -> float | None:
        """Share of LRU's gain over chance that comes from order; None where LRU gains less than 0.02."""
        if self.lru.mean is None or self.order_gain.mean is None or self.lru.mean - self.chance < SLIGHT:
            return None
        return self.order_gain.mean / (self.lru.mean - self.chance)

    @property
    def verdict(self) -> str:
        """`recency`, `popularity` or `neither`: what a cache of this size lives on.

        `neither`: neither LRU nor a fixed set (held out, where there are units to hold out) gains 0.02 over chance.
        `recency`: LRU does, and more than half of its gain is gone when tokens are shuffled. `popularity`: otherwise.
        """
        # On few tokens the set that knows them seems to find popularity in pure chance.
        pinned = self.static if self.static_held_out.mean is None else self.static_held_out
        best = max(self.lru.mean or 0.0, pinned.mean or 0.0)
        if best - self.chance < SLIGHT:
            return "neither"
        return "recency" if (self.order_share or 0.0) > 0.5 else "popularity"


def locality(
    trace: RoutingTrace,
    capacities: Iterable[int],
    *,
    resampling: Resampling | None = None,
    units: Units | None = None,
) -> list[Locality]:
    """Tell popularity skew from temporal locality by hit rates at some capacities.

    Compares the best fixed set, LRU, and LRU on the same tokens in shuffled order (within each sequence, the same order
    in every layer). Shuffling keeps each sequence's own favourites, so what LRU loses by it is order alone.

    Args:
        trace: The routing.
        capacities: Slots a layer, each >= 1.
        resampling: Makes intervals; its seed shuffles. None: no intervals.
        units: What was cut into units already; cut here if not given.

    Returns:
        The hit rates, their differences and a verdict at each capacity. Static sets know the future or other units and
        load nothing, LRU pays for every first use: where sequences are short, part of their distance is that.

    Raises:
        SettingError: A capacity is below 1.
    """
    sizes = list(capacities)
    for size in sizes:
        require_at_least("capacity", size, 1)
    units = units or units_of(trace)
    figures = [figure for place in range(len(sizes)) for figure in _figures(place)]
    tally = _hits(trace, sizes, Resampling().seed if resampling is None else resampling.seed)
    values = list(evaluate(trace, tally, figures, units, resampling).values())
    share = [min(1.0, size / trace.num_experts) for size in sizes]
    each = len(COMPARED)
    return [Locality(size, share[at], *values[at * each : (at + 1) * each]) for at, size in enumerate(sizes)]


def static_hits(ids: np.ndarray, ranks: np.ndarray, group_of_row: np.ndarray, capacity: int) -> np.ndarray:
    """Return which slots hold one of the first `capacity` experts of their row's group."""
    rank = ranks[group_of_row[:, None], ids]
    hits: np.ndarray = (ids >= 0) & (rank != UNRANKED) & (rank < capacity)
    return hits


def _hits(trace: RoutingTrace, capacities: list[int], seed: int) -> Tally:
    firsts = sequence_firsts(trace)
    # Sorting by sequence, then by chance, shuffles each sequence in its place. The seed alone might be that of the
    # simulation which made the trace, and would then sort it.
    chance = np.random.default_rng([seed, SHUFFLE]).random(trace.num_tokens)
    shuffled = np.lexsort((chance, firsts))

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        ids, table = layer_ids(trace, layer)
        counts, first = uses(ids, units.of_row, units.count, table), first_uses(ids, table)
        everyone = popularity_ranks(counts.sum(axis=0, keepdims=True), first)
        others = popularity_ranks(of_others(counts), first)
        recent, disordered = places(ids, firsts, table, True), places(ids[shuffled], firsts, table, True)
        columns = [counts.sum(axis=1).astype(np.float64)]
        for size in capacities:
            for found in (
                static_hits(ids, everyone, np.zeros_like(units.of_row), size),
                static_hits(ids, others, units.of_row, size),
                (recent >= 0) & (recent < size),
                (disordered >= 0) & (disordered < size),
            ):
                columns.append(np.bincount(units.of_row, found.sum(axis=1), minlength=units.count))
            if units.count == 1:
                columns[-4 + HELD_OUT] = np.full(1, np.nan)
        return np.stack(columns, axis=1)

    return tally


def _share(column: int, less: int | None, sums: np.ndarray) -> np.ndarray:
    hits = sums[..., column] - (0 if less is None else sums[..., less])
    return ratio(hits, sums[..., 0])


def _figures(place: int) -> list[Figure]:
    first = 1 + 4 * place
    return [
        Figure(
            f"{name} {place}",
            partial(_share, first + column, None if less is None else first + less),
            "at least one token",
            pooled=True,
            low=0.0 if less is None else -1.0,
        )
        for name, column, less in COMPARED
    ]
