"""Working sets, beside sets collected window by window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import chance_working_set, working_set
from stickymoe.metrics.rows import TABLE
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=40)


@st.composite
def traces(draw) -> RoutingTrace:
    tokens, layers, top_k = draw(st.integers(1, 20)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, 4)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0] = top_k
    ids[np.arange(top_k) >= filled[..., None]] = -1
    sequences = np.sort(rng.integers(0, draw(st.integers(1, 3)), tokens))
    positions = np.cumsum(rng.choice([1, 2], tokens, p=[0.9, 0.1])) if draw(st.booleans()) else None
    return RoutingTrace(ids, sequences, num_experts=4, positions=positions)


def window_sets(trace: RoutingTrace, window: int, layer: int) -> list[set[int]]:
    """Every window's experts: its tokens are neighbours one by one."""
    valid = trace.valid_pairs()
    return [
        used
        for start in range(trace.num_tokens - window + 1)
        if valid[start : start + window - 1].all()
        and (used := set(trace.expert_ids[start : start + window, layer].ravel().tolist()) - {-1})
    ]


@patient
@given(traces(), st.integers(1, 8))
def test_working_sets_are_those_collected_window_by_window(trace, window):
    expected = [window_sets(trace, window, layer) for layer in range(trace.num_layers)]
    if not all(expected):
        with pytest.raises(TraceError, match=f"working set needs a run of {window} neighbouring tokens, got none"):
            working_set(trace, window)
        return
    found = working_set(trace, window)
    assert found.mean.tolist() == pytest.approx([np.mean([len(each) for each in sets]) for sets in expected])
    assert found.largest.tolist() == [max(len(each) for each in sets) for sets in expected]


@patient
@given(traces(), st.permutations(range(4)))
def test_other_names_for_the_experts_change_nothing(trace, names):
    renamed = RoutingTrace(np.append(names, -1)[trace.expert_ids], trace.sequence_ids, 4, positions=trace.positions)
    assert np.array_equal(working_set(renamed, 1).mean, working_set(trace, 1).mean)


def test_a_sequence_twice_has_the_same_working_set():
    ids = np.argsort(default_rng(0).random((30, 2, 8)), axis=-1)[..., :2]
    once, twice = (RoutingTrace.from_sequences([ids] * times, num_experts=8) for times in (1, 2))
    for left, right in zip(working_set(once, 5), working_set(twice, 5), strict=True):
        assert np.array_equal(left, right)


def test_a_hand_worked_trace():
    # tokens 0 1 0 0 2; windows of 3 use {0,1} {0,1} {0,2}
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[0]], [[0]], [[2]]]], num_experts=4)
    assert [each.tolist() for each in working_set(trace, 3)] == [[2.0], [2]]
    assert [each.tolist() for each in working_set(trace, 2)] == [[(2 + 2 + 1 + 2) / 4], [2]]
    assert [each.tolist() for each in working_set(trace, 1)] == [[1.0], [1]]


def test_random_routing_has_the_working_set_of_chance():
    ids = np.argsort(default_rng(0).random((20_000, 1, 16)), axis=-1)[..., :2]
    trace = RoutingTrace.from_sequences([ids], num_experts=16)
    for window in (1, 4, 20):
        assert working_set(trace, window).mean[0] == pytest.approx(chance_working_set(trace, window), abs=0.05)
    assert chance_working_set(trace, 1) == pytest.approx(2.0)


def test_all_experts_at_once_are_the_working_set():
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[1, 0]]]], num_experts=2)
    assert working_set(trace, 2).mean.tolist() == [2.0] == [chance_working_set(trace, 2)]


def test_experts_with_huge_numbers_are_counted_without_a_table_of_them():
    trace = RoutingTrace.from_sequences([[[[5]], [[2**30]], [[5]], [[TABLE + 5]]]], num_experts=2**31)
    assert working_set(trace, 2).mean.tolist() == [2.0]
    assert working_set(trace, 4).largest.tolist() == [3]


def test_windows_that_cannot_be_are_refused():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]], [[[0]]]], num_experts=2)
    with pytest.raises(SettingError, match="window must be >= 1, got 0"):
        working_set(trace, 0)
    with pytest.raises(TraceError, match="a run of 3 neighbouring tokens, got none"):
        working_set(trace, 3)
    with pytest.raises(TraceError, match="a run of 1000000000000 neighbouring tokens"):
        working_set(trace, 10**12)
