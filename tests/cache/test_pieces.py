"""A trace in pieces is counted as the whole."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.cache import POLICIES, simulate
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace, UsageProfile

patient = settings(deadline=None, max_examples=80)
TRACES = st.from_type(RoutingTrace)
ONLINE = sorted(name for name, kind in POLICIES.items() if not {"future", "profile"} & kind.needs)
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "accesses": st.sampled_from(["topk", "top1"]),
        "replay": st.sampled_from(["atomic", "sequential"]),
        "prefill": st.sampled_from(["token", "pass"]),
        "count": st.sampled_from(["assignments", "unique"]),
        "reset": st.sampled_from(["sequence", "never"]),
        "admission": st.sampled_from(["always", "whole"]),
    }
)


def cut(trace: RoutingTrace, bounds: list[int]) -> list[RoutingTrace]:
    """Cut a trace at rows where each piece and the rest still route somebody."""
    pieces, start = [], 0
    routes = (trace.expert_ids[:, :, 0] >= 0).any(axis=1)
    for stop in [*sorted(set(bounds)), trace.num_tokens]:
        if routes[start:stop].any() and (routes[stop:].any() or stop >= trace.num_tokens):
            rows = slice(start, stop)
            pieces.append(
                RoutingTrace(
                    trace.expert_ids[rows],
                    trace.sequence_ids[rows],
                    trace.num_experts,
                    expert_weights=trace.expert_weights[rows],
                    phases=trace.phases[rows],
                    event_ids=None if trace.event_ids is None else trace.event_ids[rows],
                    expert_bytes=trace.expert_bytes,
                )
            )
            start = stop
    return pieces


@patient
@given(TRACES, st.lists(st.integers(1, 14), max_size=4), st.sampled_from(ONLINE), st.integers(0, 9), OPTIONS)
def test_pieces_are_counted_as_the_whole(trace, bounds, policy, capacity, options):
    pieces = cut(trace, bounds)
    whole = simulate(trace, policy, capacity, **options)
    report = simulate(iter(pieces), policy, capacity, **options)
    assert json.dumps(report.as_dict()) == json.dumps(whole.as_dict())


def test_many_short_pieces_are_one_trace():
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((300, 2, 8)), axis=-1)[..., :3]
    trace = RoutingTrace(ids, np.repeat([0, 1, 2], 100), 8, phases=np.tile(np.repeat([0, 1], 50), 3))
    parts = (
        RoutingTrace(ids[at : at + 7], trace.sequence_ids[at : at + 7], 8, phases=trace.phases[at : at + 7])
        for at in range(0, 300, 7)
    )
    options = {"prefill": "pass", "scope": "model", "count": "unique"}
    assert simulate(parts, "lfu", 9, **options).as_dict() == simulate(trace, "lfu", 9, **options).as_dict()


def test_a_profile_from_elsewhere_serves_a_trace_in_pieces():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]], [[1]], [[2]]]], num_experts=3)
    profile = UsageProfile(np.array([[0, 9, 1]]))
    assert simulate(iter([trace, trace]), "static", 1, profile=profile, reset="never").hits == 4


WHOLE = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"policy": "belady"},
            "cache.policy must be an online policy of POLICIES, for a trace in pieces, got 'belady'",
        ),
        ({"batch": 2}, "cache.batch must be 1 for a trace in pieces"),
        ({"policy": "static"}, "cache.profile must be another trace or a usage profile"),
        ({"policy": "static", "profile": 0.5}, "cache.profile must be another trace or a usage profile"),
    ],
)
def test_what_needs_the_whole_trace_says_so(given, words):
    with pytest.raises(SettingError, match=words):
        simulate(iter([WHOLE]), **({"policy": "lru", "capacity": 1} | given))


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([], "at least one token, got no piece"),
        ([WHOLE, RoutingTrace.from_sequences([[[[0], [1]]]], 3)], "piece 1 must have the num_layers of the first"),
        ([WHOLE, RoutingTrace.from_sequences([[[[0]]]], 4)], "piece 1 must have the num_experts of the first"),
        ([WHOLE, RoutingTrace(np.zeros((1, 1, 1), int), [0], 3, phases=[0])], "piece 1 must know weights and phases"),
        ([RoutingTrace(np.zeros((1, 1, 1), int), [0], 2**31)], "at most 4194304 experts in all"),
    ],
)
def test_pieces_that_do_not_belong_together_are_refused(pieces, words):
    with pytest.raises(TraceError, match=words):
        simulate(iter(pieces), "lru", 1)
