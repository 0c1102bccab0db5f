"""Drive a policy through a trace and count: what a cache of a given size would have found."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stickymoe.cache.policy import CachePolicy
from stickymoe.cache.registry import POLICIES, PolicyFactory
from stickymoe.cache.report import CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace, streams


class ReplayStats(NamedTuple):
    """Lookups that found their expert resident, and lookups that did not."""

    hits: int
    misses: int


def replay(
    events: Iterable[Sequence[int]], policy: CachePolicy, capacity: int, *, count: str = "assignments"
) -> ReplayStats:
    """Replay one stream of events from a cold start.

        replay([[0], [1], [0], [2], [1], [0]], LRU(), capacity=2)      # ReplayStats(hits=1, misses=5)

    All experts of an event are looked up against the state at its start; then the misses are admitted in request order,
    each for one victim once the cache is full. Experts of the running event are victims only when nothing else is left.

    Args:
        events: Experts asked for, in request order.
        policy: A policy that has seen nothing yet.
        capacity: Slots, >= 1.
        count: `assignments`: every request is a lookup; `unique`: an expert asked for twice in one event is one lookup.
    """
    listed = [list(event) for event in events]
    hits = sum(hits_of_events(listed, policy, capacity, count))
    lookups = sum(len(set(event)) if count == "unique" else len(event) for event in listed)
    return ReplayStats(hits, lookups - hits)


def hits_of_events(events: list[list[int]], policy: CachePolicy, capacity: int, count: str) -> list[int]:
    """Replay one stream and return the hits of each event; see `replay`."""
    policy.foresee(events)
    resident: set[int] = set()
    touch, hits = policy.touch, []
    for event in events:
        requests = dict.fromkeys(event) if count == "unique" else event
        found = 0
        for expert in requests:
            if expert in resident:
                found += 1
        hits.append(found)
        for expert in event:
            touch(expert)
        if found < len(requests):
            _admit(event, policy, capacity, resident)
    return hits


def _admit(event: list[int], policy: CachePolicy, capacity: int, resident: set[int]) -> None:
    waiting = [expert for expert in dict.fromkeys(event) if expert not in resident]
    running = set(event)
    for number, expert in enumerate(waiting):
        if len(resident) >= capacity:
            # The policy knows the whole event already; what has no slot yet, this expert included, cannot give one up.
            spare = not resident <= running
            pinned = running if spare else set(waiting[number:])
            victim = policy.evict(pinned)
            if victim not in resident or victim in pinned:
                rule = "one that evicts a resident expert outside the pinned ones"
                raise SettingError.broken("cache.policy", rule, victim, f"mend {type(policy).__name__}.evict")
            resident.remove(victim)
        resident.add(expert)


def simulate(
    trace: RoutingTrace,
    policy: str | PolicyFactory = "lru",
    capacity: int | float | None = None,
    *,
    scope: str = "layer",
    accesses: str = "topk",
    replay: str = "atomic",
    reset: str = "sequence",
    count: str = "assignments",
) -> CacheReport:
    """Count what a cache would have found on a trace.

    Args:
        trace: The routing.
        policy: A name of `POLICIES`, or a function from the capacity to a fresh policy.
        capacity: Whole slots >= 1: a layer's, or the model's if that is the scope. May exceed the number of experts.
        scope: `layer`: one cache a layer; `model`: one pool, a slot holding one expert of one layer.
        accesses: `topk`: all experts of a token are looked up; `top1`: the one of slot 0.
        replay: `atomic`: a token's experts at a layer are looked up together, then admitted; `sequential`: one by one.
        reset: `sequence`: cold at each sequence; `never`: one cache through the whole trace.
        count: `assignments` or `unique`: how an expert asked for twice in one event counts. Alike while an event is one
            token, whose experts are distinct.

    Returns:
        Hits and misses per layer with their semantics. First uses are misses.

    Raises:
        SettingError: A setting breaks its rule.
    """
    settings = CacheSettings.checked(policy, capacity, scope, accesses, replay, reset, count)
    factory = POLICIES[policy] if isinstance(policy, str) else policy
    hits = np.zeros(trace.num_layers, dtype=np.int64)
    for stream in streams(trace, scope=scope, accesses=accesses, replay=replay, reset=reset):
        found = hits_of_events(stream.events, factory(settings.capacity), settings.capacity, count)
        np.add.at(hits, stream.layers, found)
    return settings.report(trace, hits)
