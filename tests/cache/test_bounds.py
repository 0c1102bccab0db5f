"""Both Belady bounds beside a search through every choice a cache could make."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache import make_policy, replay, simulate
from stickymoe.traces import RoutingTrace

EVENTS = st.lists(
    st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=7
).map(tuple)


def fewest_loads(events: tuple[tuple[int, ...], ...], capacity: int, admission: str) -> int:
    """Try everything: what may be kept after each event, and the loads that follow from it."""

    @cache
    def least(number: int, held: frozenset[int]) -> int:
        if number == len(events):
            return 0
        event = frozenset(events[number])
        after = held | event
        choices = []
        for size in range(min(capacity, len(after)) + 1):
            choices += map(frozenset, combinations(sorted(after), size))
        if admission == "whole":
            choices = [kept for kept in [*choices, event] if event <= kept]
        elif admission == "always":
            # all of the event stays, or, where it is too large, nothing but parts of it
            choices = [kept for kept in choices if event <= kept or (len(event) > capacity and kept <= event)]
        return len(event - held) + min(least(number + 1, kept) for kept in choices)

    return least(0, frozenset())


@settings(deadline=None, max_examples=150)
@given(EVENTS, st.integers(0, 4), st.sampled_from(["always", "whole", "bypass"]))
def test_no_choice_loads_less_than_belady(events, capacity, admission):
    name = "belady-bypass" if admission == "bypass" else "belady"
    stats = replay(events, make_policy(name, 5), capacity, admission=admission)
    assert stats.misses == fewest_loads(events, capacity, admission)


@settings(deadline=None, max_examples=60)
@given(EVENTS, st.integers(0, 4), st.sampled_from(["belady", "belady-bypass"]), st.booleans())
def test_the_compiled_bound_is_the_searched_one(events, capacity, policy, sequential):
    ids = np.full((len(events), 1, 3), -1)
    for number, event in enumerate(events):
        ids[number, 0, : len(event)] = event
    trace = RoutingTrace(ids, np.zeros(len(events), int), 5)
    report = simulate(trace, policy, capacity, replay="sequential" if sequential else "atomic")
    asked = tuple((expert,) for event in events for expert in event) if sequential else events
    assert report.loads == fewest_loads(asked, capacity, "bypass" if policy == "belady-bypass" else "always")


@pytest.mark.parametrize(("policy", "hits"), [("belady", 1), ("belady-bypass", 2)])
def test_bypass_pays_where_an_expert_is_asked_for_once(policy, hits):
    # 0 1 0 with one slot: forced to take 1 in, the cache loses 0
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[0]], [[0]]]], num_experts=2)
    assert simulate(trace, policy, 1).hits == hits
