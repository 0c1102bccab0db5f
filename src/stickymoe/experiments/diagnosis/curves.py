"""Hit rate against cache size: the curves, the knee, the smallest budgets, the worth of the next slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stickymoe.cache import CacheReport
from stickymoe.experiments.diagnosis.budget import GIB, Budget

TARGETS = (0.5, 0.8, 0.9, 0.95)
_ALL_UP_TO = 256
_BETWEEN = 64


@dataclass(frozen=True)
class Curve:
    """Hit rates of one policy at several capacities.

    Args:
        policy: Name.
        capacities: Slots, rising.
        hit_rates: Over all layers, one a capacity.
        per_layer: One row a capacity, one number a layer.
    """

    policy: str
    capacities: tuple[int, ...]
    hit_rates: tuple[float, ...]
    per_layer: tuple[tuple[float, ...], ...]

    def smallest(self, target: float) -> int | None:
        """Return the smallest capacity on the curve that reaches `target`, None where none does."""
        return next((c for c, rate in zip(self.capacities, self.hit_rates, strict=True) if rate >= target), None)

    def at(self, capacity: int) -> float:
        """Return the hit rate at a capacity of the curve."""
        return self.hit_rates[self.capacities.index(capacity)]


@dataclass(frozen=True)
class Target:
    """The smallest budget for a hit rate; None where no cache reaches it, first uses being misses."""

    hit_rate: float
    slots: int | None
    total_bytes: int | None
    belady_slots: int | None


@dataclass(frozen=True)
class NextStep:
    """What more cache brings.

    Args:
        slots: The larger capacity.
        added_bytes: What it takes beyond the budget, None where no size is known.
        hit_rate: LRU's there.
        gain: Hit rate above that of the budget.
        saved_per_token: Loads that a token saves.
    """

    slots: int
    added_bytes: int | None
    hit_rate: float
    gain: float
    saved_per_token: float


def curve_of(reports: Mapping[int, CacheReport], policy: str) -> Curve:
    """Make a curve of the reports of one policy, by capacity."""
    sizes = sorted(reports)
    layers = [tuple(_rates(reports[size]).tolist()) for size in sizes]
    return Curve(policy, tuple(sizes), tuple(reports[size].hit_rate for size in sizes), tuple(layers))


def _rates(report: CacheReport) -> np.ndarray:
    lookups = report.hits_per_layer + report.misses_per_layer
    rates: np.ndarray = report.hits_per_layer / np.maximum(lookups, 1)
    return rates


def capacities_of(budget: Budget, *extra: int) -> list[int]:
    """Return the capacities of a full curve: every one, or where they are many a choice with the budget in it."""
    last = budget.experts
    if last <= _ALL_UP_TO:
        sizes = set(range(1, last + 1))
    else:
        sizes = {round(size) for size in np.geomspace(1, last, _BETWEEN)} | {round(last * n / 64) for n in range(1, 65)}
    return sorted({size for size in (*sizes, budget.slots, *extra) if size >= 1})


def sparse_capacities(budget: Budget, demand: int, points: int) -> list[int]:
    """Return a few capacities from one token's demand to all experts, the budget among them, for slower policies."""
    first = min(max(1, demand), budget.experts)
    sizes = {round(size) for size in np.geomspace(first, budget.experts, points)}
    return sorted(sizes | {budget.slots})


def between(curve: Curve, experts: int) -> list[int]:
    """Return the capacities to add so that knee and targets are exact on a curve that leaves some out."""
    sizes, added = curve.capacities, set[int]()
    knee = sizes.index(knee_of(curve, experts))
    places = [(knee - 1, knee), (knee, knee + 1)]
    for rate in TARGETS:
        reached = curve.smallest(rate)
        if reached is not None:
            places.append((sizes.index(reached) - 1, sizes.index(reached)))
    for low, high in places:
        if low >= 0 and high < len(sizes):
            added |= set(range(sizes[low] + 1, sizes[high]))
    return sorted(added)


def knee_of(curve: Curve, experts: int) -> int:
    """Return the capacity where the curve is farthest above the straight line between its ends.

    Ends are the first capacity and all experts; both axes are scaled to [0, 1]. Below the knee a slot brings more than
    the average slot, above it less.
    """
    inside = [index for index, capacity in enumerate(curve.capacities) if capacity <= experts]
    x = np.array([curve.capacities[index] for index in inside], dtype=np.float64)
    y = np.array([curve.hit_rates[index] for index in inside])
    if len(x) < 3 or y[-1] <= y[0]:
        return int(x[0])
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    return int(x[int(np.argmax(above.round(9)))])  # a straight line has no knee but rounding


def targets_of(lru: Curve, belady: Curve | None, budget: Budget) -> list[Target]:
    """Return the smallest budget of each target hit rate; Belady's among the few capacities it was replayed at."""
    found = []
    for rate in TARGETS:
        slots = lru.smallest(rate)
        size = None if slots is None else budget.bytes_of(slots)
        found.append(Target(rate, slots, size, belady.smallest(rate) if belady else None))
    return found


def next_capacity(budget: Budget) -> int | None:
    """Return the capacity one GiB above the budget, or an eighth more where no size is known; None at the end."""
    if budget.slots >= budget.experts:
        return None
    step = budget.slots / 8 if budget.slot_bytes is None else GIB / budget.slot_bytes
    return min(budget.experts, budget.slots + max(1, int(step)))


def next_step(lru: Curve, budget: Budget, requests_per_token: float) -> NextStep | None:
    """Return what the next GiB brings under LRU, or the next slots; see `next_capacity`."""
    slots = next_capacity(budget)
    if slots is None:
        return None
    rate, now = lru.at(slots), lru.at(budget.slots)
    added = None if budget.slot_bytes is None else round((slots - budget.slots) * budget.slot_bytes)
    return NextStep(slots, added, rate, rate - now, (rate - now) * requests_per_token)
