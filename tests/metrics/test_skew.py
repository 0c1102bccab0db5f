"""Popularity against recency, beside hits counted one by one."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.core.errors import SettingError
from stickymoe.metrics import Resampling, locality
from stickymoe.traces import RoutingTrace

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
QWEN = SHARED / "data" / "traces" / "qwen3-30b-a3b" / "code.npz"


def random_trace(sequences: int = 3, tokens: int = 25, experts: int = 6, top_k: int = 2) -> RoutingTrace:
    rng = default_rng(0)
    taste = rng.random((sequences, 1, 2, experts)) + rng.random((sequences, tokens, 2, experts))
    return RoutingTrace.from_sequences(np.argsort(taste, axis=-1)[..., :top_k], num_experts=experts)


def lru_hits(rows: list[list[int]], capacity: int) -> int:
    recent: list[int] = []
    hits = 0
    for token in rows:
        hits += len(set(token) & set(recent[:capacity]))
        for expert in token:
            recent = [expert, *(each for each in recent if each != expert)]
    return hits


@pytest.mark.parametrize("capacity", [1, 2, 4, 6])
def test_hit_rates_equal_those_counted_one_by_one(capacity):
    trace = random_trace()
    (found,) = locality(trace, [capacity])
    sequences = [[rows[:, layer].tolist() for rows in trace.sequences()] for layer in range(2)]
    lookups = 2 * trace.num_tokens * trace.top_k
    static = held_out = recent = 0
    for layer in sequences:
        counts = [Counter(expert for token in rows for expert in token) for rows in layer]
        static += sum(uses for _, uses in sum(counts, Counter()).most_common(capacity))
        recent += sum(lru_hits(rows, capacity) for rows in layer)
        first = [expert for rows in layer for token in rows for expert in token]
        for own in counts:
            others = sum(counts, Counter()) - own
            best = sorted(others, key=lambda e: (-others[e], first.index(e)))[:capacity]
            held_out += sum(own[expert] for expert in best)
    assert found.static.mean == pytest.approx(static / lookups)
    assert found.static_held_out.mean == pytest.approx(held_out / lookups)
    assert found.lru.mean == pytest.approx(recent / lookups)
    assert found.order_gain.mean == pytest.approx(found.lru.mean - found.lru_shuffled.mean)
    assert found.lru_over_pinning.mean == pytest.approx(found.lru.mean - found.static_held_out.mean)
    assert found.chance == capacity / 6


def test_shuffling_keeps_each_sequence_and_its_tokens_whole():
    # Of two-token sequences LRU sees the same whatever the order: each expert twice or once.
    trace = RoutingTrace.from_sequences([[[[0]], [[0]]], [[[1]], [[2]]], [[[3]], [[3]]]], num_experts=4)
    (found,) = locality(trace, [1])
    assert found.lru.mean == found.lru_shuffled.mean == pytest.approx(2 / 6)


def test_popular_experts_in_no_order_are_popularity():
    ids = default_rng(0).choice(8, p=[0.5, 0.3, 0.1, 0.02, 0.02, 0.02, 0.02, 0.02], size=(4, 500, 1, 1))
    (found,) = locality(RoutingTrace.from_sequences(ids, num_experts=8), [2])
    assert found.verdict == "popularity"
    assert abs(found.order_gain.mean) < 0.02
    assert found.static.mean == pytest.approx(0.8, abs=0.02)
    assert found.lru_over_pinning.mean < 0


def test_equally_popular_experts_in_runs_are_recency():
    ids = np.repeat(np.tile(np.arange(8), (4, 5)), 10, axis=1)[..., None, None]
    (found,) = locality(RoutingTrace.from_sequences(ids, num_experts=8), [1])
    assert (found.verdict, found.static.mean, found.lru.mean) == ("recency", 1 / 8, 0.9)
    assert found.order_share > 0.9
    assert found.lru_over_pinning.mean > 0.7


def test_random_routing_lives_on_neither_and_hits_by_chance():
    ids = np.argsort(default_rng(0).random((4, 2000, 1, 16)), axis=-1)[..., :2]
    (found,) = locality(RoutingTrace.from_sequences(ids, num_experts=16), [4])
    assert (found.verdict, found.order_share) == ("neither", None)
    for rate in (found.static, found.static_held_out, found.lru, found.lru_shuffled):
        assert rate.mean == pytest.approx(0.25, abs=0.02)


def test_differences_have_their_own_intervals():
    trace = random_trace(sequences=10)
    (found,) = locality(trace, [3], resampling=Resampling(resamples=100))
    low, high = found.order_gain.interval
    assert -1 <= low < found.order_gain.mean < high <= 1
    assert (found.lru.interval, locality(trace, [3])[0].lru.interval) != (None, None)
    assert locality(trace, [3])[0].lru.interval is None


def test_one_short_sequence_has_no_others_to_learn_from():
    (found,) = locality(RoutingTrace.from_sequences([[[[0]], [[0]]]], num_experts=2), [1], resampling=Resampling())
    assert (found.static_held_out.mean, found.lru_over_pinning.mean) == (None, None)
    assert (found.static.mean, found.lru.mean, found.lru.interval) == (1.0, 0.5, None)


def test_a_capacity_out_of_range_is_refused():
    with pytest.raises(SettingError, match="capacity must be >= 1, got 0"):
        locality(random_trace(), [4, 0])


@pytest.mark.skipif(not QWEN.exists(), reason="the real trace is not here")
def test_lru_of_a_real_trace_is_the_published_one():
    known = json.loads((SHARED / "golden" / "public_traces.json").read_text())["qwen3-30b-a3b first 2000 tokens"]
    published = known["data"]["qwen3-30b-a3b/code[first 2000 tokens]"]["per_layer_16"]
    with np.load(QWEN) as file:
        trace = RoutingTrace.from_sequences([file["experts"][:, :2000].transpose(1, 0, 2)], num_experts=128)
    (found,) = locality(trace, [16])
    assert found.lru.mean == pytest.approx(published["event_atomic_hits"]["LRU"] / published["requests"], abs=1e-12)
