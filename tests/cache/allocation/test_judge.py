"""A split is fitted on some sequences and judged on others."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import simulate
from stickymoe.cache.allocation import allocate, miss_curves, misses_of
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=25)


def random_trace(seed: int, sequences: int = 4, layers: int = 3, experts: int = 6) -> RoutingTrace:
    """Layer 0 uses two experts, the last one all of them."""
    rng = default_rng(seed)
    tokens = 12 * sequences
    limits = np.linspace(2, experts, layers).astype(int)
    ids = np.stack([np.argsort(rng.random((tokens, limit)), axis=1)[:, :1] for limit in limits], axis=1)
    return RoutingTrace(ids, np.repeat(np.arange(sequences), 12), experts)


def test_curves_hold_what_a_replay_of_each_capacity_misses():
    trace = random_trace(0)
    curves = miss_curves(trace)
    assert curves.shape == (3, 7)
    assert curves[:, 0].tolist() == [48, 48, 48]
    for slots in range(1, 7):
        assert curves[:, slots].tolist() == simulate(trace, "lru", slots).misses_per_layer.tolist()


@patient
@given(st.integers(0, 2**32), st.integers(3, 20))
def test_every_way_is_counted_on_the_sequences_it_names(seed, slots):
    trace = random_trace(seed)
    report = allocate(trace, slots)
    fitted, judged = trace.select(sequences=[0, 2]), trace.select(sequences=[1, 3])
    assert report.fitted_misses["split"] <= report.fitted_misses["equal"]
    assert report.held_out_misses["hindsight"] <= min(report.held_out_misses[way] for way in ("split", "equal"))
    assert report.held_out_misses["pool"] == simulate(judged, "lru", slots, scope="model").misses
    for part, counted in ((fitted, report.fitted_misses), (judged, report.held_out_misses)):
        for way, split in (("split", report.slots), ("equal", report.equal_slots)):
            each = [simulate(part, "lru", int(size)).misses_per_layer[layer] for layer, size in enumerate(split)]
            assert counted[way] == sum(each)
    assert report.gain == pytest.approx(report.hit_rate("split") - report.hit_rate("equal"))
    assert report.held_out_lookups == judged.num_tokens * 3


def test_layers_that_need_more_get_more():
    report = allocate(random_trace(1), 11)
    assert report.slots.tolist() == [2, 3, 6] or report.slots[0] < report.slots[2]
    assert report.gain > 0


def test_one_sequence_is_cut_in_half_and_another_trace_may_be_the_judge():
    trace = random_trace(2, sequences=1)
    assert allocate(trace, 9).semantics["fitted_on"] == "the first 6 tokens"
    other = random_trace(3)
    report = allocate(trace, 9, held_out=other)
    assert report.held_out_misses["equal"] == misses_of(miss_curves(other), report.equal_slots).sum()
    assert "judged on another trace" in report.describe()


def test_bytes_are_divided_where_experts_differ_in_size():
    trace = replace(random_trace(4), expert_bytes=np.array([100, 200, 300]))
    report = allocate(trace, budget_bytes=1500)
    assert report.slots @ [100, 200, 300] <= 1500
    assert report.equal_slots.tolist() == [5, 2, 1]
    assert report.semantics["budget_bytes"] == 1500
    assert json.loads(json.dumps(report.as_dict()))["slots"] == report.slots.tolist()


def test_faults_are_one_line():
    trace = random_trace(0)
    with pytest.raises(SettingError, match="given slots or budget_bytes, one of them"):
        allocate(trace)
    with pytest.raises(SettingError, match="needs expert_bytes"):
        allocate(trace, budget_bytes=100)
    with pytest.raises(SettingError, match=r"allocation.scope must be left out"):
        allocate(trace, 9, scope="model")
    with pytest.raises(SettingError, match="at least 2 tokens"):
        allocate(trace.head(1), 9)
    with pytest.raises(TraceError, match=r"must have the layers and experts of the trace, \(3, 6\), got \(2, 6\)"):
        allocate(trace, 9, held_out=random_trace(0, layers=2))
