"""Entropy and spread of the load, beside counts made one by one."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import (
    chance_overlap,
    expert_overlap,
    load_spread,
    overlap_by_use,
    static_coverage,
    utilisation_entropy,
)
from stickymoe.traces import RoutingTrace, UsageProfile

patient = settings(deadline=None, max_examples=60)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"
STREAMS = st.lists(st.integers(0, 5), min_size=1, max_size=30)


def top1(experts: list[int], num_experts: int = 6) -> RoutingTrace:
    return RoutingTrace.from_sequences([[[[expert]] for expert in experts]], num_experts=num_experts)


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
def test_golden_traces_have_their_golden_entropy():
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        expected = case["expected"]["utilisation_entropy_bits"]
        np.testing.assert_allclose(utilisation_entropy(trace), expected, rtol=0, atol=1e-12)


def test_the_ends_of_the_scales():
    assert utilisation_entropy(top1([2, 2, 2])).tolist() == [0.0]
    assert [part.tolist() for part in load_spread(top1([2, 2, 2]))] == [[pytest.approx(5**0.5)], [6.0]]
    assert utilisation_entropy(top1([0, 1, 2, 3], num_experts=4)).tolist() == [2.0]
    assert [part.tolist() for part in load_spread(top1([0, 1, 2, 3], num_experts=4))] == [[0.0], [1.0]]


@patient
@given(STREAMS)
def test_measures_equal_those_of_a_full_table_of_counts(experts):
    counts = np.array([experts.count(expert) for expert in range(6)])
    share = counts[counts > 0] / counts.sum()
    assert utilisation_entropy(top1(experts))[0] == pytest.approx(-(share * np.log2(share)).sum(), abs=1e-12)
    spread = load_spread(top1(experts))
    assert spread.variation[0] == pytest.approx(counts.std() / counts.mean(), abs=1e-12)
    assert spread.busiest[0] == pytest.approx(counts.max() / counts.mean(), abs=1e-12)


@patient
@given(STREAMS, st.permutations(range(6)))
def test_other_names_for_the_experts_change_nothing(experts, names):
    renamed = top1([names[expert] for expert in experts])
    assert utilisation_entropy(renamed)[0] == pytest.approx(utilisation_entropy(top1(experts))[0], abs=1e-12)
    assert load_spread(renamed).busiest == load_spread(top1(experts)).busiest


def test_overlap_by_use_is_that_of_all_pairs_of_tokens():
    first, second = (
        default_rng(seed).random((40, experts)).argsort(axis=-1)[:, :2] for seed, experts in ((0, 6), (1, 3))
    )
    ids = np.stack([first, second], axis=1)
    trace = RoutingTrace(ids, np.zeros(40, dtype=int), num_experts=6)
    sets = [[set(token[layer].tolist()) for token in ids] for layer in range(2)]
    expected = [np.mean([len(one & other) / 2 for one in tokens for other in tokens]) for tokens in sets]
    assert overlap_by_use(trace) == pytest.approx(expected, abs=1e-12)
    # the same by the load's spread
    assert overlap_by_use(trace) == pytest.approx(chance_overlap(trace) * (1 + load_spread(trace).variation ** 2))


def test_order_alone_does_not_move_overlap_by_use_and_an_even_load_has_that_of_chance():
    sorted_, turned = top1([0, 0, 0, 1, 1, 1], num_experts=2), top1([0, 1] * 3, num_experts=2)
    assert [overlap_by_use(each).tolist() for each in (sorted_, turned)] == [[0.5], [0.5]]
    assert (expert_overlap(sorted_)[0], expert_overlap(turned)[0]) == (0.8, 0.0)


def test_overlap_by_use_is_of_each_layers_own_slots():
    trace = RoutingTrace.from_sequences([[[[0, 1], [2, -1]], [[1, 0], [2, -1]], [[0, 1], [-1, -1]]]], num_experts=4)
    assert overlap_by_use(trace).tolist() == [1.0, 1.0]
    with pytest.raises(TraceError, match="overlap by use needs at least one token"):
        overlap_by_use(RoutingTrace.from_sequences([[[[0], [-1]]]], num_experts=2))


def test_all_slots_of_all_sequences_are_pooled_a_layer_and_empty_ones_left_out():
    trace = RoutingTrace.from_sequences([[[[0, 1], [0, -1]]], [[[2, 3], [0, -1]]]], num_experts=4)
    assert utilisation_entropy(trace).tolist() == [2.0, 0.0]
    assert load_spread(trace).busiest.tolist() == [1.0, 4.0]


@patient
@given(STREAMS, st.integers(1, 8))
def test_counts_alone_give_what_the_trace_gives(experts, capacity):
    counts = np.array([[experts.count(expert) for expert in range(6)]])
    profile, trace = UsageProfile(counts), top1(experts)
    assert utilisation_entropy(profile) == pytest.approx(utilisation_entropy(trace))
    assert load_spread(profile).variation == pytest.approx(load_spread(trace).variation)
    best = sum(sorted(counts[0], reverse=True)[:capacity]) / len(experts)
    assert static_coverage(profile, capacity).tolist() == static_coverage(trace, capacity).tolist() == [best]


def test_a_layer_that_served_nothing_is_named():
    unserved = RoutingTrace(np.array([[[0], [-1]]]), np.array([0]), num_experts=2, layer_names=("a", "mtp.0"))
    for measure in (utilisation_entropy, load_spread, lambda trace: static_coverage(trace, 1)):
        with pytest.raises(TraceError, match=r"at least one token, got none that layer mtp\.0 served"):
            measure(unserved)
    assert utilisation_entropy(unserved.select(layers=["a"])).tolist() == [0.0]
    with pytest.raises(SettingError, match="capacity must be >= 1, got 0"):
        static_coverage(unserved, 0)


def test_one_expert_is_even_and_sure():
    trace = top1([0, 0], num_experts=1)
    assert utilisation_entropy(trace).tolist() == [0.0]
    assert [part.tolist() for part in load_spread(trace)] == [[0.0], [1.0]]


def test_two_billion_experts_need_no_table_of_counts():
    trace = top1([0, 2**31 - 1], num_experts=2**31)
    assert utilisation_entropy(trace).tolist() == [1.0]
    assert load_spread(trace).busiest.tolist() == [2.0**30]
