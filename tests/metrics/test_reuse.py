"""Reuse distances, beside a list kept in order of use."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError
from stickymoe.metrics import reuse_distances
from stickymoe.metrics.rows import TABLE
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
SHARED = Path(__file__).resolve().parents[2].parent / "shared"
GOLDEN = SHARED / "golden" / "traces.json"
QWEN = SHARED / "data" / "traces" / "qwen3-30b-a3b" / "code.npz"
KEYS = {"sequential": "sequential_hits", "atomic": "event_atomic_hits"}


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


def test_an_event_is_looked_up_before_it_moves_anything():
    # after [0, 1] the most recent is 1; in turn, 0 then 1 are both at 1
    trace = RoutingTrace.from_sequences([[[[0, 1]], [[0, 1]]]], num_experts=2)
    assert reuse_distances(trace, replay="atomic") == [{-1: 2, 0: 1, 1: 1}]
    assert reuse_distances(trace) == [{-1: 2, 1: 2}]


def test_layers_and_sequences_start_afresh():
    trace = RoutingTrace.from_sequences([[[[0], [0]], [[0], [1]]], [[[0], [0]]]], num_experts=2)
    assert reuse_distances(trace) == [{-1: 2, 0: 1}, {-1: 3}]


def test_a_sequence_no_expert_served_has_no_distances():
    trace = RoutingTrace(np.array([[[0]], [[-1]]]), np.array([0, 1]), num_experts=2)
    assert reuse_distances(trace) == [{-1: 1}]


@st.composite
def traces(draw) -> RoutingTrace:
    """Few experts, so that the kernel's clock runs out and is wound back often; ids far apart or not."""
    tokens, top_k = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, 2, 4)), axis=-1)[..., :top_k]
    filled = rng.integers(0, top_k + 1, (tokens, 2))
    filled[0, 0] = top_k
    ids[np.arange(top_k) >= filled[..., None]] = -1
    stretch = draw(st.sampled_from([1, 5 * TABLE]))
    ids = np.where(ids < 0, -1, ids * stretch)
    return RoutingTrace(ids, np.sort(rng.integers(0, draw(st.integers(1, 3)), tokens)), num_experts=4 * stretch)


@patient
@given(traces(), st.sampled_from(["topk", "top1"]), st.sampled_from(["sequential", "atomic"]))
def test_distances_equal_those_of_a_list_kept_in_order(trace, accesses, replay):
    expected: list[Counter[int]] = [Counter(), Counter()]
    for rows in trace.sequences():
        for layer in range(2):
            recent: list[int] = []
            for token in rows[:, layer].tolist():
                wanted = [expert for expert in token[: 1 if accesses == "top1" else None] if expert >= 0]
                for event in [wanted] if replay == "atomic" else [[expert] for expert in wanted]:
                    expected[layer].update(recent.index(e) if e in recent else -1 for e in event)
                    for expert in event:
                        recent = [expert, *(each for each in recent if each != expert)]
    assert reuse_distances(trace, accesses, replay=replay) == [dict(each) for each in expected]


@patient
@given(traces(), st.permutations(range(4)))
def test_other_names_for_the_experts_change_no_distance(trace, names):
    stretch = trace.num_experts // 4
    renamed = np.where(trace.expert_ids < 0, -1, np.array(names)[trace.expert_ids // stretch] * stretch)
    other = RoutingTrace(renamed, trace.sequence_ids, trace.num_experts)
    assert reuse_distances(other) == reuse_distances(trace)


def test_a_sequence_twice_has_twice_the_distances():
    ids = default_rng(0).integers(0, 6, (50, 1, 1))
    once, twice = (reuse_distances(RoutingTrace.from_sequences([ids] * times, num_experts=6))[0] for times in (1, 2))
    assert twice == {distance: 2 * uses for distance, uses in once.items()}


@pytest.mark.skipif(not QWEN.exists(), reason="the real trace is not here")
@pytest.mark.parametrize("replay", ["sequential", "atomic"])
def test_a_real_trace_has_the_published_lru_hits_at_every_capacity(replay):
    known = json.loads(GOLDEN.with_name("public_traces.json").read_text())["qwen3-30b-a3b first 2000 tokens"]
    published = known["data"]["qwen3-30b-a3b/code[first 2000 tokens]"]
    with np.load(QWEN) as file:
        ids = file["experts"][:, :2000].transpose(1, 0, 2)
    counts = reuse_distances(RoutingTrace.from_sequences([ids], num_experts=128), replay=replay)
    for capacity in (8, 16, 24, 32, 64):
        hits = sum(uses for layer in counts for distance, uses in layer.items() if 0 <= distance < capacity)
        assert hits == published[f"per_layer_{capacity}"][KEYS[replay]]["LRU"]


def test_an_unknown_word_names_the_nearest():
    trace = RoutingTrace.from_sequences([[[[0]]]], num_experts=2)
    with pytest.raises(SettingError, match="did you mean 'top1'"):
        reuse_distances(trace, "top-1")
