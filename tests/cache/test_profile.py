"""Static caches: who is chosen, and what the choice cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache import simulate
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace, UsageProfile

TRACES = st.from_type(RoutingTrace)
# one layer: 0 three times, 1 twice, 2 once
TRACE = RoutingTrace(np.array([2, 0, 1, 0, 1, 0])[:, None, None], np.zeros(6, int), 4, expert_bytes=[10])


@settings(deadline=None, max_examples=60)
@given(TRACES, st.integers(0, 12), st.sampled_from(["layer", "model"]), st.sampled_from(["sequence", "never"]))
def test_the_most_used_stay_and_all_others_miss(trace, capacity, scope, reset):
    report = simulate(trace, "static", capacity, scope=scope, reset=reset)
    uses = np.stack([np.bincount(each[each >= 0], minlength=5) for each in trace.expert_ids.swapaxes(0, 1)])
    pools = [uses.reshape(-1)] if scope == "model" else list(uses)
    assert report.hits == sum(int(np.sort(pool)[::-1][:capacity].sum()) for pool in pools)
    assert report.lookups == uses.sum()


def test_hindsight_is_named_and_its_loads_are_told():
    report = simulate(TRACE, "static", 2)
    assert (report.hits, report.misses, report.compulsory) == (5, 1, 1)
    assert report.profile == {
        "from": "the same trace (hindsight)",
        "tokens": 6,
        "pinned": 2,
        "loads_ahead": 2,
        "cold_starts": 1,
        "bytes_ahead": 20,
    }
    assert report.describe().endswith("misses are not admitted, profile the same trace (hindsight)")
    assert report.as_dict()["profile"] == report.profile


def test_what_is_learned_on_the_first_tokens_costs_their_misses():
    # the first three tell 0, 1 and 2 once each: 0 and 1 by their ids
    report = simulate(TRACE, "static", 2, profile=0.5)
    assert (report.hits, report.misses) == (3, 3)
    assert report.profile["from"] == "the first 3 tokens, which all miss"
    assert report.profile["tokens"] == 3
    assert simulate(TRACE, "static", 2, profile=0.01).hits == 0 + 3  # 2 is known, and 0 as the first of the others


def test_other_traces_and_profiles_of_the_model_serve():
    other = RoutingTrace(np.array([3, 3, 2])[:, None, None], np.zeros(3, int), 4)
    assert simulate(TRACE, "static", 1, profile=other).hits == 0
    assert simulate(TRACE, "static", 2, profile=other).hits == 1
    assert simulate(TRACE, "static", 1, profile=UsageProfile(np.array([[0, 5, 0, 0]]))).hits == 2


@settings(deadline=None, max_examples=60)
@given(TRACES, st.integers(0, 30))
def test_bytes_are_filled_in_the_order_of_uses(trace, budget):
    report = simulate(trace, "static", capacity_bytes=budget, scope="model")
    assert report.profile["bytes_ahead"] <= budget
    every = simulate(trace, "static", capacity_bytes=1000, scope="model")
    assert every.misses == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"profile": UsageProfile(np.ones((2, 4), int))}, "of the trace's model, 1 layers of 4 experts, got '2 of 4'"),
        ({"profile": RoutingTrace.from_sequences([[[[0]]]], 3)}, "got '1 of 3'"),
        ({"profile": 1.5}, "cache.profile must be a share above 0 and below 1, got 1.5"),
        ({"profile": float("nan")}, "cache.profile must be a share"),
        ({"profile": 0.5, "batch": 2}, "cache.batch must be 1 where the profile is a share"),
    ],
)
def test_a_profile_that_cannot_serve_is_refused(given, words):
    with pytest.raises(SettingError, match=words):
        simulate(TRACE, "static", 1, **given)


def test_layers_of_other_names_are_refused():
    trace = RoutingTrace(TRACE.expert_ids, TRACE.sequence_ids, 4, layer_names=("3",))
    profile = UsageProfile(np.ones((1, 4), int), layer_names=("4",))
    with pytest.raises(SettingError, match=r"cache.profile must be of the trace's layers, 3, got '4'"):
        simulate(trace, "static", 1, profile=profile)
