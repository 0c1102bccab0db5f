"""Segment routing and segment cache, beside golden values and slow replays from their definitions."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import segment_cache_best_hit_rate, segment_routing_best_performance
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=40)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"


@st.composite
def traces(draw) -> RoutingTrace:
    tokens, layers, top_k = draw(st.integers(1, 20)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, 5)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0] = top_k
    ids[np.arange(top_k) >= filled[..., None]] = -1
    return RoutingTrace(ids, np.sort(rng.integers(0, draw(st.integers(1, 3)), tokens)), num_experts=5)


def tokens_of(trace: RoutingTrace, layer: int) -> list[list[list[int]]]:
    return [[[e for e in row if e >= 0] for row in rows[:, layer].tolist()] for rows in trace.sequences()]


def srp_by_definition(segments: list[list[list[int]]], size: int) -> tuple[float, float, int] | None:
    counts = [
        sum(expert in token for token in sequence[start : start + size])
        for sequence in segments
        for start in range(len(sequence) - size + 1)
        for expert in range(5)
    ]
    if not sum(counts):
        return None
    scores = []
    for threshold in range(1, size + 1):
        marked = [count for count in counts if count >= threshold]
        scores.append((2 * sum(marked) / (size * len(marked) + sum(counts)), size * len(marked) / sum(counts)))
    best = max(range(size), key=lambda at: (scores[at][0], -at))
    return *scores[best], best + 1


def sch_by_definition(sequences: list[list[list[int]]], ahead: int, capacity: int, *, free: bool) -> tuple[int, int]:
    hits = lookups = 0
    for sequence in sequences:
        resident: set[int] = set()
        last: dict[int, int] = {}
        for now, token in enumerate(sequence):
            for expert in token:
                lookups += 1
                known = last.keys() | set(token[: token.index(expert)])
                hits += expert in resident or (free and expert not in known and len(known) < capacity)
            resident |= set(token)
            last |= dict.fromkeys(token, now)
            future = [expert for later in sequence[now + 1 : now + 1 + ahead] for expert in later]
            while len(resident) > capacity:
                resident.remove(min(resident, key=lambda e: (future.count(e), last[e], -e)))
    return hits, lookups


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
def test_golden_traces_have_their_golden_segment_measures():
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        for segment, expected in case["expected"]["srp"].items():
            found = segment_routing_best_performance(trace, int(segment))
            assert [found.value, found.rho_hat, found.threshold] == pytest.approx(expected, abs=1e-12)
        for segment, capacity, expected in case["expected"]["sch"]:
            assert segment_cache_best_hit_rate(trace, segment, capacity).value == pytest.approx(expected, abs=1e-12)


@patient
@given(traces(), st.integers(1, 6))
def test_srp_is_the_best_of_all_thresholds(trace, segment):
    layers = [tokens_of(trace, layer) for layer in range(trace.num_layers)]
    alone = [srp_by_definition(layer, segment) for layer in layers]
    if None in alone:
        with pytest.raises(TraceError, match=f"needs a run of {segment} neighbouring tokens"):
            segment_routing_best_performance(trace, segment)
        return
    found = segment_routing_best_performance(trace, segment)
    pooled = srp_by_definition([sequence for layer in layers for sequence in layer], segment)
    assert (found.value, found.rho_hat, found.threshold) == pytest.approx(pooled)
    assert found.per_layer.tolist() == pytest.approx([each[0] for each in alone])
    assert 0 < found.value <= 1


@patient
@given(traces(), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_sch_is_that_of_a_slow_replay(trace, segment, capacity, free):
    counts = [
        sch_by_definition(tokens_of(trace, layer), segment, capacity, free=free) for layer in range(trace.num_layers)
    ]
    # A sequence of which a layer serves nothing is no lookup.
    if any(lookups == 0 for _, lookups in counts):
        return
    cold_start = "liang-2025" if free else "miss"
    found = segment_cache_best_hit_rate(trace, segment, capacity, cold_start=cold_start)
    assert (found.hits, found.lookups) == tuple(map(sum, zip(*counts, strict=True)))
    assert found.per_layer.tolist() == pytest.approx([hits / lookups for hits, lookups in counts])


@settings(patient, max_examples=20)
@given(traces(), st.integers(1, 6))
def test_more_slots_never_hit_less_and_kind_counting_never_counts_less(trace, segment):
    rates = [segment_cache_best_hit_rate(trace, segment, capacity).hits for capacity in range(1, 7)]
    kind = [segment_cache_best_hit_rate(trace, segment, c, cold_start="liang-2025").hits for c in range(1, 7)]
    assert rates == sorted(rates)
    assert all(left <= right for left, right in zip(rates, kind, strict=True))


@patient
@given(traces(), st.permutations(range(5)), st.integers(1, 4))
def test_other_names_for_the_experts_do_not_change_srp(trace, names, segment):
    renamed = RoutingTrace(np.append(names, -1)[trace.expert_ids], trace.sequence_ids, 5)
    try:
        expected = segment_routing_best_performance(trace, segment)
    except TraceError:
        return
    assert segment_routing_best_performance(renamed, segment).value == expected.value


def test_a_sequence_twice_has_the_same_values():
    ids = np.argsort(default_rng(0).random((40, 2, 8)), axis=-1)[..., :2]
    once, twice = (RoutingTrace.from_sequences([ids] * times, num_experts=8) for times in (1, 2))
    left, right = (segment_routing_best_performance(trace, 4) for trace in (once, twice))
    assert (left.value, left.rho_hat, left.threshold) == (right.value, right.rho_hat, right.threshold)
    for capacity in (2, 4):
        rates = [segment_cache_best_hit_rate(trace, 4, capacity).value for trace in (once, twice)]
        assert rates[0] == rates[1]


def test_a_hand_worked_cache():
    # tokens    0   1   2   0   1      capacity 2, two tokens ahead
    # after     0  01  01  01  01      at token 2 the next two use 0 and 1: 2 itself leaves at once
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[2]], [[0]], [[1]]]], num_experts=3)
    found = segment_cache_best_hit_rate(trace, 2, 2)
    assert (found.hits, found.lookups, found.value, found.cold_start) == (2, 5, 0.4, "miss")
    # 0 and 1 find room; 2 is the third expert and does not
    assert segment_cache_best_hit_rate(trace, 2, 2, cold_start="liang-2025").hits == 4


def test_one_expert_and_all_experts_are_foreseen_whole():
    one = RoutingTrace.from_sequences([[[[0]]] * 6], num_experts=1)
    every = RoutingTrace.from_sequences([[[[0, 1]]] * 6], num_experts=2)
    for trace in (one, every):
        found = segment_routing_best_performance(trace, 4)
        assert (found.value, found.rho_hat, found.threshold) == (1.0, 1.0, 1)
        assert segment_cache_best_hit_rate(trace, 4, 10**15).value == pytest.approx(5 / 6)


def test_settings_out_of_range_are_refused():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    with pytest.raises(SettingError, match="segment must be >= 1, got 0"):
        segment_routing_best_performance(trace, 0)
    with pytest.raises(SettingError, match="segment must be >= 1, got 0"):
        segment_cache_best_hit_rate(trace, 0, 1)
    with pytest.raises(SettingError, match="capacity must be >= 1, got 0"):
        segment_cache_best_hit_rate(trace, 1, 0)
    with pytest.raises(SettingError, match="did you mean 'liang-2025'"):
        segment_cache_best_hit_rate(trace, 1, 1, cold_start="liang")
    unserved = RoutingTrace(np.array([[[0], [-1]]]), np.array([0]), num_experts=2, layer_names=("a", "b"))
    with pytest.raises(TraceError, match="got none that layer b served; leave it out"):
        segment_cache_best_hit_rate(unserved, 1, 1)
