"""Replay, beside a cache of ages in a plain dictionary and beside golden counts."""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import LRU, POLICIES, CachePolicy, CacheReport, replay, simulate
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"
EVENTS = st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True), max_size=25)
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "accesses": st.sampled_from(["topk", "top1"]),
        "replay": st.sampled_from(["atomic", "sequential"]),
        "reset": st.sampled_from(["sequence", "never"]),
    }
)


@st.composite
def trace_parts(draw) -> dict[str, Any]:
    tokens, layers, top_k = draw(st.integers(1, 15)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, 5)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0] = np.maximum(filled[0], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    return {"expert_ids": ids, "sequence_ids": np.sort(rng.integers(0, 3, tokens)), "num_experts": 5}


def by_age(trace: RoutingTrace, capacity: int, *, scope: str, accesses: str, replay: str, reset: str) -> np.ndarray:
    """Hits and misses per layer of LRU caches that keep the last use of every block; (layers, 2)."""
    counts = np.zeros((trace.num_layers, 2), dtype=int)
    caches: dict[int, set[tuple[int, int]]] = {}
    last_use: dict[tuple[int, int], int] = {}
    clock, sequence = 0, None
    for t in range(trace.num_tokens):
        if reset == "sequence" and trace.sequence_ids[t] != sequence:
            caches, sequence = {}, trace.sequence_ids[t]
        for layer in range(trace.num_layers):
            cache = caches.setdefault(layer if scope == "layer" else 0, set())
            ids = [(layer, int(e)) for e in trace.expert_ids[t, layer][: 1 if accesses == "top1" else None] if e >= 0]
            for event in [ids] if replay == "atomic" else [[block] for block in ids]:
                missing = [block for block in event if block not in cache]
                counts[layer] += len(event) - len(missing), len(missing)
                for block in event:
                    clock += 1
                    last_use[block] = clock
                for block in missing:
                    if len(cache) == capacity:
                        cache.remove(min(cache - set(event) or cache, key=last_use.__getitem__))
                    cache.add(block)
    return counts


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_golden_traces_have_their_golden_hits_and_misses(policy):
    rows = 0
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        for name, scope, accesses, mode, reset, capacity, hits, misses in case["expected"]["simulations"]["rows"]:
            if name == policy:
                report = simulate(trace, name, capacity, scope=scope, accesses=accesses, replay=mode, reset=reset)
                assert (report.hits, report.misses) == (hits, misses), report.describe()
                rows += 1
    assert rows > 0


def test_the_public_conformance_trace_hits_12_of_30():
    sets = [[0, 1], [0, 2], [0, 1], [0, 3], [0, 1]]
    report = simulate(RoutingTrace.from_sequences([[[pair] * 3 for pair in sets]], num_experts=4), "lru", 2)
    assert (report.lookups, report.hits, report.misses) == (30, 12, 18)
    assert report.hits_per_layer.tolist() == [4, 4, 4]
    assert report.compulsory == 12


@pytest.mark.parametrize("count", ["assignments", "unique"])
def test_an_expert_asked_for_twice_in_one_event_counts_as_the_setting_says(count):
    # [0 0 1] all miss; [0 0 2]: 0 hits, 2 misses
    stats = replay([[0, 0, 1], [0, 0, 2]], LRU(), 2, count=count)
    assert stats == ((2, 4) if count == "assignments" else (1, 3))


@patient
@given(trace_parts(), st.integers(1, 12), OPTIONS)
def test_lru_equals_a_cache_of_ages(parts, capacity, options):
    trace = RoutingTrace(**parts)
    report = simulate(trace, "lru", capacity, **options)
    expected = by_age(trace, capacity, **options)
    assert report.hits_per_layer.tolist() == expected[:, 0].tolist()
    assert report.misses_per_layer.tolist() == expected[:, 1].tolist()


@patient
@given(trace_parts(), st.integers(1, 12), OPTIONS)
def test_every_lookup_hits_or_misses_and_first_uses_miss(parts, capacity, options):
    trace = RoutingTrace(**parts)
    report = simulate(trace, capacity=capacity, **options)
    slots = trace.expert_ids[..., :1] if options["accesses"] == "top1" else trace.expert_ids
    assert report.lookups == report.hits + report.misses == (slots >= 0).sum()
    assert (report.compulsory_per_layer <= report.misses_per_layer).all()


@patient
@given(trace_parts(), OPTIONS)
def test_a_cache_with_room_for_all_misses_first_uses_alone(parts, options):
    trace = RoutingTrace(**parts)
    report = simulate(trace, capacity=trace.num_experts * trace.num_layers, **options)
    assert report.misses_per_layer.tolist() == report.compulsory_per_layer.tolist()


@patient
@given(trace_parts(), st.integers(1, 6), OPTIONS)
def test_a_larger_lru_cache_never_hits_less_if_it_holds_an_event(parts, capacity, options):
    trace = RoutingTrace(**parts)
    capacity = max(capacity, trace.top_k if options["replay"] == "atomic" else 1)
    smaller, larger = (simulate(trace, "lru", size, **options) for size in (capacity, capacity + 1))
    assert (larger.hits_per_layer >= smaller.hits_per_layer).all()


def test_a_cache_smaller_than_an_event_keeps_what_was_admitted_last():
    # 0 is resident and hits; 1 is admitted, and 0, the only one there, leaves for it
    assert replay([[0], [1, 0], [1]], LRU(), 1) == (2, 2)


@patient
@given(trace_parts(), st.permutations(range(5)), st.integers(1, 6), OPTIONS)
def test_other_names_for_the_experts_change_no_count(parts, names, capacity, options):
    trace = RoutingTrace(**parts)
    renamed = RoutingTrace(np.append(names, -1)[trace.expert_ids], trace.sequence_ids, 5)
    before, after = (simulate(each, "lru", capacity, **options) for each in (trace, renamed))
    assert after.hits_per_layer.tolist() == before.hits_per_layer.tolist()


class NewestFirst(CachePolicy):
    """Evicts the largest expert it may, and notes what it was asked."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.asked: list[set[int]] = []
        self.future: list[list[int]] = []

    def foresee(self, events: Sequence[Sequence[int]]) -> None:
        self.future = [list(event) for event in events]

    def touch(self, expert: int) -> None:
        self.held.add(expert)

    def evict(self, pinned: AbstractSet[int]) -> int:
        self.asked.append(set(pinned))
        victim = max(self.held - pinned)
        self.held.remove(victim)
        return victim


def test_the_running_event_is_spared_until_nothing_else_is_left():
    policy = NewestFirst()
    # 9 leaves for 3 with the event spared; then 3 leaves for 4, which has no slot yet and cannot be the victim
    assert replay([[2, 9], [2, 3, 4]], policy, 2) == (1, 4)
    assert policy.asked == [{2, 3, 4}, {4}]
    assert policy.held == {2, 4}
    assert policy.future == [[2, 9], [2, 3, 4]]


@patient
@given(EVENTS, st.integers(1, 5))
def test_a_policy_holds_no_more_than_the_capacity_between_events(events, capacity):
    policy = NewestFirst()
    replay(events, policy, capacity)
    assert len(policy.held) == min(capacity, len({expert for event in events for expert in event}))


def test_a_users_own_policy_is_given_the_capacity():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[0]]]], num_experts=2)
    seen = []

    def own(capacity: int) -> CachePolicy:
        seen.append(capacity)
        return NewestFirst()

    report = simulate(trace, own, 1)
    assert (report.hits, report.misses, seen) == (0, 3, [1])
    assert report.semantics["policy"] == "own"


def test_a_policy_that_evicts_what_it_must_not_is_named():
    class Stubborn(NewestFirst):
        def evict(self, pinned: AbstractSet[int]) -> int:
            return 7

    with pytest.raises(SettingError, match=r"cache.policy must be .* got 7; mend Stubborn.evict"):
        replay([[0], [1]], Stubborn(), 1)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"capacity": 0}, "cache.capacity must be a whole number of slots >= 1, got 0"),
        ({"capacity": -1}, "cache.capacity"),
        ({"capacity": 0.5}, "cache.capacity must be a whole number of slots >= 1, got 0.5"),
        ({"capacity": True}, "cache.capacity"),
        ({"capacity": None}, "cache.capacity .* got None"),
        ({"policy": "lruu"}, "cache.policy must be one of lru, got 'lruu'; did you mean 'lru'"),
        ({"scope": "layers"}, "cache.scope .* did you mean 'layer'"),
        ({"accesses": "all"}, "cache.accesses must be one of top1, topk"),
        ({"replay": "sequence"}, "cache.replay"),
        ({"reset": "always"}, "cache.reset"),
        ({"count": "uniq"}, "cache.count"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    trace = RoutingTrace.from_sequences([[[[0]]]], num_experts=2)
    with pytest.raises(SettingError, match=words):
        simulate(trace, **({"capacity": 1} | broken))


def test_a_report_says_how_it_was_counted():
    trace = RoutingTrace.from_sequences([[[[0, 1], [1, 0]], [[0, 1], [0, 1]]]], num_experts=4)
    paper = simulate(trace, "lru", 2, accesses="top1", replay="sequential")
    assert paper.describe() == "LRU, capacity 2 a layer, top-1 accesses, sequential, cold at each sequence"
    pooled = simulate(trace, "lru", 3, scope="model", reset="never", count="unique")
    assert pooled.describe() == (
        "LRU, capacity 3 for the whole model, top-2 accesses, atomic, "
        "one cache through the whole trace, each expert once an event"
    )
    assert pooled.semantics == {
        "policy": "lru",
        "capacity": 3,
        "scope": "model",
        "accesses": "topk",
        "top_k": 2,
        "replay": "atomic",
        "prefill": "token",
        "count": "unique",
        "reset": "never",
    }


def test_a_report_is_json_with_its_rates():
    trace = RoutingTrace.from_sequences([[[[0], [1]], [[0], [0]]]], num_experts=2)
    report = simulate(trace, "lru", 1)
    assert isinstance(report, CacheReport)
    told = json.loads(json.dumps(report.as_dict()))
    assert told["hit_rate"] == 0.25
    assert told["hit_rate_per_layer"] == [0.5, 0.0]
    assert (told["lookups"], told["hits"], told["misses"], told["compulsory"]) == (4, 1, 3, 3)
    assert told["description"] == report.describe()
