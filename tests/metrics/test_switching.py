"""Switch rates and overlap, beside pairs counted one by one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import chance_overlap, expert_overlap, set_switch_rate, switch_rate
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"
MEASURES = [switch_rate, set_switch_rate, expert_overlap]


@st.composite
def trace_parts(draw) -> dict[str, Any]:
    """Traces of which every layer serves the first two tokens, so that a pair is valid."""
    tokens, layers, top_k = draw(st.integers(2, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, 4)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[:2] = np.maximum(filled[:2], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    sequences = np.sort(rng.integers(0, 3, tokens))
    sequences[1] = sequences[0]
    documents = np.sort(rng.integers(0, 2, tokens))
    documents[1] = documents[0]
    positions = np.cumsum(rng.integers(1, 3, tokens))
    positions[0] = positions[1] - 1
    optional = {"document_ids": documents, "positions": positions} if draw(st.booleans()) else {}
    return {"expert_ids": ids, "sequence_ids": np.sort(sequences), "num_experts": 4} | optional


def counted_one_by_one(trace: RoutingTrace) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"switch_rate": [], "set_switch_rate": [], "expert_overlap": []}
    for layer in range(trace.num_layers):
        switches, set_switches, overlaps = [], [], []
        for t in range(1, trace.num_tokens):
            before, now = trace.expert_ids[t - 1, layer].tolist(), trace.expert_ids[t, layer].tolist()
            same_document = trace.document_ids is None or trace.document_ids[t] == trace.document_ids[t - 1]
            follows = trace.positions is None or trace.positions[t] == trace.positions[t - 1] + 1
            if trace.sequence_ids[t] != trace.sequence_ids[t - 1] or not same_document or not follows:
                continue
            if before[0] == -1 or now[0] == -1:
                continue
            left, right = set(before) - {-1}, set(now) - {-1}
            switches.append(before[0] != now[0])
            set_switches.append(left != right)
            overlaps.append(len(left & right) / len(right))
        found["switch_rate"].append(sum(switches) / len(switches))
        found["set_switch_rate"].append(sum(set_switches) / len(set_switches))
        found["expert_overlap"].append(sum(overlaps) / len(overlaps))
    return found


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
def test_golden_traces_have_their_golden_rates():
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        for measure in MEASURES:
            np.testing.assert_allclose(measure(trace), case["expected"][measure.__name__], rtol=0, atol=1e-12)


def test_a_hand_worked_trace():
    # top-1    0  0  1  0     switches at 2 of 3 pairs
    # sets    01 02 12 02     all differ, each shares one of two with the one before
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[0, 2]], [[1, 2]], [[0, 2]]]], num_experts=4)
    assert switch_rate(trace).tolist() == [2 / 3]
    assert set_switch_rate(trace).tolist() == [1.0]
    assert expert_overlap(trace).tolist() == [0.5]
    assert chance_overlap(trace) == 0.5


def test_swapped_slots_are_a_switch_but_no_set_switch():
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[1, 0]]]], num_experts=4)
    assert (switch_rate(trace)[0], set_switch_rate(trace)[0], expert_overlap(trace)[0]) == (1.0, 0.0, 1.0)


def test_a_set_within_a_larger_one_is_another_set_either_way():
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[0, -1]], [[0, 1]]]], num_experts=4)
    assert set_switch_rate(trace)[0] == 1.0
    assert expert_overlap(trace)[0] == (1.0 + 0.5) / 2
    assert chance_overlap(trace) == 5 / 3 / 4


@patient
@given(trace_parts())
def test_rates_equal_pairs_counted_one_by_one(parts):
    trace = RoutingTrace(**parts)
    expected = counted_one_by_one(trace)
    for measure in MEASURES:
        np.testing.assert_allclose(measure(trace), expected[measure.__name__], rtol=0, atol=1e-12)


@patient
@given(trace_parts(), st.permutations(range(4)))
def test_other_names_for_the_experts_change_no_rate(parts, names):
    trace = RoutingTrace(**parts)
    renamed = np.append(names, -1)[trace.expert_ids]
    other = RoutingTrace(renamed, trace.sequence_ids, 4, document_ids=trace.document_ids, positions=trace.positions)
    for measure in MEASURES:
        assert np.array_equal(measure(other), measure(trace))


@patient
@given(trace_parts())
def test_a_top_1_switch_rate_is_the_set_switch_rate(parts):
    trace = RoutingTrace(**parts)
    top1 = RoutingTrace(trace.expert_ids[..., :1], trace.sequence_ids, 4)
    assert np.array_equal(switch_rate(top1), set_switch_rate(top1))
    np.testing.assert_allclose(switch_rate(top1), 1 - expert_overlap(top1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_trace_without_neighbours_has_no_rate(measure):
    one_token = RoutingTrace.from_sequences([[[[0]]], [[[1]]]], num_experts=4)
    with pytest.raises(TraceError, match="needs at least one pair of neighbouring tokens"):
        measure(one_token)
    unserved = RoutingTrace.from_sequences([[[[0], [0]], [[0], [-1]]]], num_experts=4)
    with pytest.raises(TraceError, match="none that layer 1 served"):
        measure(unserved)


def test_one_token_sequences_beside_longer_ones_count_for_nothing():
    pair = [[[0]], [[1]]]
    assert switch_rate(RoutingTrace.from_sequences([[[[2]]], pair, [[[1]]]], num_experts=4)).tolist() == [1.0]


@patient
@given(trace_parts(), st.integers(1, 5))
def test_overlap_at_a_lag_equals_pairs_counted_one_by_one(parts, lag):
    trace = RoutingTrace(**parts)
    valid = trace.valid_pairs()
    expected = []
    for layer in range(trace.num_layers):
        rows = [set(row) - {-1} for row in trace.expert_ids[:, layer].tolist()]
        pairs = [t for t in range(lag, len(rows)) if valid[t - lag : t].all() and rows[t] and rows[t - lag]]
        expected.append([len(rows[t] & rows[t - lag]) / len(rows[t]) for t in pairs])
    if not all(expected):
        with pytest.raises(TraceError, match="expert overlap needs at least one pair"):
            expert_overlap(trace, lag)
        return
    np.testing.assert_allclose(expert_overlap(trace, lag), [np.mean(each) for each in expected], atol=1e-12)


def test_random_routing_overlaps_by_chance_at_every_lag():
    ids = np.argsort(default_rng(0).random((20_000, 1, 16)), axis=-1)[..., :4]
    trace = RoutingTrace.from_sequences([ids], num_experts=16)
    assert chance_overlap(trace) == 0.25
    for lag in (1, 7):
        assert expert_overlap(trace, lag)[0] == pytest.approx(0.25, abs=0.01)
    assert switch_rate(trace)[0] == pytest.approx(15 / 16, abs=0.01)


def test_a_sequence_twice_has_the_same_rates():
    ids = np.argsort(default_rng(0).random((30, 2, 8)), axis=-1)[..., :2]
    once, twice = (RoutingTrace.from_sequences([ids] * times, num_experts=8) for times in (1, 2))
    for measure in (*MEASURES, lambda trace: expert_overlap(trace, 4)):
        np.testing.assert_allclose(measure(twice), measure(once), rtol=0, atol=1e-12)


def test_a_lag_out_of_range_is_refused():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    with pytest.raises(SettingError, match="lag must be >= 1, got 0"):
        expert_overlap(trace, 0)
    with pytest.raises(TraceError, match="at least one pair of tokens 2 apart in one sequence, got none"):
        expert_overlap(trace, 2)


def test_ids_beyond_small_integers_are_told_apart():
    # Equal modulo 2**8 and 2**16.
    trace = RoutingTrace.from_sequences([[[[5]], [[5 + 2**8]], [[5 + 2**16]], [[5 + 2**16]]]], num_experts=2**31)
    assert switch_rate(trace).tolist() == [2 / 3]
