"""Reuse distances, beside sets of what came between."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.metrics import reuse_distances
from stickymoe.metrics.reuse import stack_distances
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "traces.json"


def between(stream: list[int]) -> list[int]:
    """Distance of each use by collecting, each time anew, the experts since the last use."""
    distances = []
    for now, expert in enumerate(stream):
        earlier = [t for t in range(now) if stream[t] == expert]
        distances.append(len(set(stream[earlier[-1] + 1 : now])) if earlier else -1)
    return distances


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
@pytest.mark.parametrize("accesses", ["topk", "top1"])
def test_golden_traces_have_their_golden_distances(accesses):
    for case in json.loads(GOLDEN.read_text()):
        trace = RoutingTrace.from_sequences(case["expert_ids"], num_experts=case["num_experts"])
        pooled: Counter[int] = Counter()
        for counts in reuse_distances(trace, accesses):
            pooled.update(counts)
        expected = case["expected"][f"reuse_distances_{accesses}"]
        assert pooled == {int(distance): count for distance, count in expected.items()}


@patient
@given(st.lists(st.integers(0, 6), max_size=30))
def test_places_one_by_one_are_the_number_of_others_between(stream):
    assert stack_distances([[expert] for expert in stream]) == between(stream)


@patient
@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 8))
def test_a_limit_forgets_what_lies_further_back(stream, limit):
    events = [[expert] for expert in stream]
    expected = [place if place < limit else -1 for place in stack_distances(events)]
    assert stack_distances(events, limit=limit) == expected


def test_an_event_is_looked_up_before_it_moves_anything():
    # after [0, 1] the most recent is 1; in turn, 0 then 1 would be at 1 and 1
    assert stack_distances([[0, 1], [0, 1]]) == [-1, -1, 1, 0]
    assert stack_distances([[0], [1], [0], [1]]) == [-1, -1, 1, 1]


def test_layers_and_sequences_start_afresh():
    trace = RoutingTrace.from_sequences([[[[0], [0]], [[0], [1]]], [[[0], [0]]]], num_experts=2)
    assert reuse_distances(trace) == [{-1: 2, 0: 1}, {-1: 3}]


def test_a_sequence_no_expert_served_has_no_distances():
    trace = RoutingTrace(np.array([[[0]], [[-1]]]), np.array([0, 1]), num_experts=2)
    assert reuse_distances(trace) == [{-1: 1}]


def test_an_unknown_word_names_the_nearest():
    trace = RoutingTrace.from_sequences([[[[0]]]], num_experts=2)
    with pytest.raises(SettingError, match="did you mean 'top1'"):
        reuse_distances(trace, "top-1")
