"""One pass for all capacities equals one replay a capacity."""

import inspect
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import PAPER_SEMANTICS, POLICIES, hit_rate_curve, simulate
from stickymoe.cache.settings import SEMANTICS, Semantics
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=80)
TRACES = st.from_type(RoutingTrace)
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "accesses": st.sampled_from(["topk", "top1"]),
        "replay": st.sampled_from(["atomic", "sequential"]),
        "prefill": st.sampled_from(["token", "pass"]),
        "count": st.sampled_from(["assignments", "unique"]),
        "reset": st.sampled_from(["sequence", "never"]),
        "batch": st.sampled_from([1, 2]),
    }
)


def random_trace(seed: int, tokens: int, layers: int, top_k: int, experts: int = 6) -> RoutingTrace:
    rng = default_rng(seed)
    ids = np.argsort(rng.random((tokens, layers, experts)), axis=-1)[..., :top_k]
    return RoutingTrace(ids, np.sort(rng.integers(0, 3, tokens)), num_experts=experts)


@patient
@given(
    TRACES,
    st.lists(st.integers(0, 4) | st.integers(0, 20), min_size=1, max_size=4),
    OPTIONS,
    st.sampled_from(["always", "whole", "bypass"]),
)
def test_one_pass_equals_a_replay_for_each_capacity(trace, capacities, options, admission):
    options |= {"admission": admission}
    for report, capacity in zip(hit_rate_curve(trace, "lru", capacities, **options), capacities, strict=True):
        alone = simulate(trace, "lru", capacity, **options)
        assert json.dumps(report.as_dict()) == json.dumps(alone.as_dict())
        assert report.per_phase["decode"].tolist() == alone.per_phase["decode"].tolist()


@patient
@given(TRACES, st.lists(st.integers(0, 8), min_size=1, max_size=3), OPTIONS, st.sampled_from(sorted(POLICIES)))
def test_a_curve_of_any_policy_equals_a_replay_for_each_capacity(trace, capacities, options, policy):
    for report, capacity in zip(hit_rate_curve(trace, policy, capacities, **options), capacities, strict=True):
        assert json.dumps(report.as_dict()) == json.dumps(simulate(trace, policy, capacity, **options).as_dict())


@patient
@given(TRACES, st.lists(st.integers(0, 40), min_size=1, max_size=3), OPTIONS, st.sampled_from(["lru", "lfu", "belady"]))
def test_a_curve_over_bytes_equals_a_replay_for_each(trace, budgets, options, policy):
    reports = hit_rate_curve(trace, policy, budgets, in_bytes=True, **options)
    for report, budget in zip(reports, budgets, strict=True):
        assert report.as_dict() == simulate(trace, policy, capacity_bytes=budget, **options).as_dict()


@pytest.mark.parametrize("scope", ["layer", "model"])
@pytest.mark.parametrize("experts", [6, 300])
def test_long_streams_outlive_the_slots_of_time(scope, experts):
    # 4096 slots of time and more are used up several times over
    trace = random_trace(3, 900 if experts == 300 else 2500, 2, 4, experts)
    sizes = [0, 1, 3, 4, 5, experts // 2, experts, 2 * experts]
    for report, size in zip(hit_rate_curve(trace, "lru", sizes, scope=scope, reset="never"), sizes, strict=True):
        assert (
            report.hits_per_layer.tolist()
            == simulate(trace, "lru", size, scope=scope, reset="never").hits_per_layer.tolist()
        )


def test_capacities_come_back_in_the_order_given():
    trace = random_trace(1, 60, 2, 4)
    reports = hit_rate_curve(trace, "lru", [9, 1, 4, 3, 4])
    assert [report.semantics["capacity"] for report in reports] == [9, 1, 4, 3, 4]
    assert reports[0].hits > reports[2].hits > reports[3].hits > reports[1].hits


def test_the_papers_semantics_are_named_once():
    (report,) = hit_rate_curve(random_trace(0, 30, 2, 2), "lru", [2], **PAPER_SEMANTICS)
    assert report.describe() == "LRU, capacity 2 a layer, top-1 accesses, sequential, cold at each sequence"


@pytest.mark.parametrize(
    ("capacities", "given", "words"),
    [
        ([], {}, "cache.capacities must be at least one"),
        ([2, -1], {}, "cache.capacity"),
        ([2], {"scope": [1, 2]}, "cache.scope must be layer or model, for a curve"),
        ([2], {"in_bytes": True}, "cache.capacity_bytes"),
    ],
)
def test_capacities_that_are_none_are_refused(capacities, given, words):
    with pytest.raises(SettingError, match=words):
        hit_rate_curve(random_trace(0, 5, 2, 1), "lru", capacities, **given)


def test_memory_does_not_grow_with_the_number_of_lookups():
    trace = random_trace(0, 40_000, 2, 4)
    hit_rate_curve(trace, "lru", range(7))
    tracemalloc.start()
    hit_rate_curve(trace, "lru", range(7))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * trace.expert_ids.nbytes


def test_simulate_names_the_settings_that_every_other_replay_takes_as_they_are():
    named = inspect.signature(simulate).parameters
    assert {name: named[name].default for name in SEMANTICS} == Semantics().keywords()
    assert set(named) == {
        *SEMANTICS,
        "trace",
        "policy",
        "capacity",
        "capacity_bytes",
        "profile",
        "options",
        "expert_bytes",
    }


def test_a_setting_that_no_replay_knows_is_named():
    trace = random_trace(0, 5, 2, 1)
    with pytest.raises(SettingError, match=r"cache.semantics must be one of .*got 'scop'; did you mean 'scope'"):
        hit_rate_curve(trace, "lru", [1], scop="model")
