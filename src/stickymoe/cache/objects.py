"""Replay step by step in Python: any policy object, a user's own included. The compiled loop counts the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stickymoe.cache.policy import CachePolicy, CompiledPolicy
from stickymoe.cache.registry import PolicyFactory
from stickymoe.cache.replay_kernel import COLD, COMPULSORY, HITS, LOADS, MISSES, Requests
from stickymoe.cache.settings import COUNTS, CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of

OBJECT_ADMISSIONS = ("always", "whole", "bypass", "never")


class ReplayStats(NamedTuple):
    """Lookups that found their expert resident, and lookups that did not."""

    hits: int
    misses: int


def replay(
    events: Iterable[Sequence[int]],
    policy: CachePolicy,
    capacity: int,
    *,
    count: str = "assignments",
    admission: str = "always",
) -> ReplayStats:
    """Replay one stream of events from a cold start.

        replay([[0], [1], [0], [2], [1], [0]], make_policy("lru", blocks=3), capacity=2)
        # ReplayStats(hits=1, misses=5)

    Args:
        events: Experts asked for, in request order.
        policy: A policy that has seen nothing yet.
        capacity: Slots, >= 0.
        count: `assignments`: every request is a lookup; `unique`: an expert asked for twice in one event is one lookup.
        admission: Which misses are admitted; see `simulate`.
    """
    require_one_of("cache.count", count, COUNTS)
    require_one_of("cache.admission", admission, OBJECT_ADMISSIONS)
    listed = [list(event) for event in events]
    policy.foresee([used(event, count == "unique") for event in listed])
    cache = ObjectCache(policy, capacity, admission)
    hits = lookups = 0
    for event in listed:
        found = cache.ask(event, unique=count == "unique")
        counted = list(dict.fromkeys(event)) if count == "unique" else event
        hits += sum(expert in found for expert in counted)
        lookups += len(counted)
    return ReplayStats(hits, lookups - hits)


class ObjectCache:
    """A budget and a policy object; `resident` are the experts with a slot.

    Args:
        policy: A policy that has seen nothing yet.
        budget: Slots, or bytes where experts have sizes.
        admission: Which misses are admitted; see `simulate`.
        sizes: What each expert takes of the budget; 1 if not given.
    """

    def __init__(
        self, policy: CachePolicy, budget: int, admission: str = "always", sizes: Sequence[int] | None = None
    ) -> None:
        """Start cold."""
        self.policy, self.budget, self.admission, self.sizes = policy, budget, admission, sizes
        self.resident: set[int] = set()

    def ask(self, event: Sequence[int], weights: Sequence[float] | None = None, *, unique: bool = False) -> set[int]:
        """Look up and use the experts of an event, admit the misses; return those that were resident before.

        All experts are looked up against the state at the start, and all are used, before anyone leaves: first those
        outside the event, in the policy's order; only when nobody else is left, those of the event, in that order too.
        An event of nobody changes nothing.

        Args:
            event: Experts in request order.
            weights: Their gate weights, for a policy that asks for them.
            unique: An expert asked for several times is used once, by its last request.
        """
        found = self.resident.intersection(event)
        if not event:
            return set()
        weight_of = None if weights is None else dict(zip(event, weights, strict=True))
        for number, expert in enumerate(used(event, unique)):
            if isinstance(self.policy, CompiledPolicy) and weights is not None and weight_of is not None:
                self.policy.touch(expert, weight_of[expert] if unique else weights[number])
            else:
                self.policy.touch(expert)
        running = set(event)
        waiting = running - found
        if self.admission == "never":
            for expert in dict.fromkeys(event):
                if expert in waiting:
                    self.policy.evict((self.resident | running) - {expert})
            return found
        self.resident |= waiting
        while self._used() > self.budget:
            spare = self.admission != "bypass" and not self.resident <= running
            if self.admission == "whole" and not spare:
                break
            self._evict(running if spare else set())
        return found

    def _used(self) -> int:
        return len(self.resident) if self.sizes is None else sum(self.sizes[expert] for expert in self.resident)

    def _evict(self, pinned: set[int]) -> None:
        victim = self.policy.evict(pinned)
        if victim not in self.resident or victim in pinned:
            rule = "one that evicts a resident expert outside the pinned ones"
            raise SettingError.broken("cache.policy", rule, victim, f"mend {type(self.policy).__name__}.evict")
        self.resident.remove(victim)


def used(event: Sequence[int], unique: bool) -> list[int]:
    """Return the uses of an event's experts in their order: every request, or the last of each expert."""
    return list(dict.fromkeys(event[::-1]))[::-1] if unique else list(event)


def count_own_policy(
    requests: Requests, factory: PolicyFactory, slots: int, experts: int, settings: CacheSettings
) -> np.ndarray:
    """Replay one pool with a user's own policy and return the counts that the compiled loop would."""
    layers = requests.ids.shape[1]
    counts = np.zeros((4, layers, 2), dtype=np.int64)
    colds = np.append(np.flatnonzero(requests.heads == COLD), requests.heads.size)
    for start, stop in pairwise(colds.tolist()):
        asked = [
            (layer, event, phases)
            for group in range(start, stop)
            for layer in range(layers)
            for event, phases in _events(requests, group, layer, experts, settings.sequential)
        ]
        policy, unique = factory(slots), settings.count == "unique"
        policy.foresee([used(event, unique) for _, event, _ in asked])
        _count_stream(asked, ObjectCache(policy, slots, settings.admits), unique, counts)
    return counts


def _events(
    requests: Requests, group: int, layer: int, experts: int, sequential: bool
) -> list[tuple[list[int], list[int]]]:
    rows = range(int(requests.groups[group]), int(requests.groups[group + 1]))
    event = [
        (layer * experts + int(e), int(requests.phases[row]))
        for row in rows
        for e in requests.ids[row, layer]
        if e >= 0
    ]
    if sequential:
        return [([expert], [phase]) for expert, phase in event]
    return [([expert for expert, _ in event], [phase for _, phase in event])]


def _count_stream(
    asked: list[tuple[int, list[int], list[int]]], cache: ObjectCache, unique: bool, counts: np.ndarray
) -> None:
    seen: set[int] = set()
    for layer, event, phases in asked:
        cache.policy.open_event(layer)
        found = cache.ask(event, unique=unique)
        met: set[int] = set()
        for expert, phase in zip(event, phases, strict=True):
            first = expert not in met
            met.add(expert)
            if first or not unique:
                counts[HITS if expert in found else MISSES, layer, phase] += 1
                counts[COMPULSORY, layer, phase] += expert not in found and expert not in seen
            counts[LOADS, layer, phase] += first and expert not in found
        seen |= met
