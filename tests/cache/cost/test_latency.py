"""Misses to milliseconds, worked by hand and token by token."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import simulate
from stickymoe.cache.calibration import CalibrationError
from stickymoe.cache.cost import Tier, predict_latency
from stickymoe.cache.report import CacheReport
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace


def report(hits: list[int], misses: list[int], top_k: int = 2) -> CacheReport:
    return CacheReport(np.array(hits), np.array(misses), np.zeros(len(hits), int), {"top_k": top_k, "capacity": 3})


def test_one_after_the_other_and_overlapped_by_hand(machine):
    # 10 tokens, 2 layers; 4 lookups and 1.5 misses a token, of 1 MB: 0.4 ms compute, 1.5 * (1 + 1) ms of loads
    found = predict_latency(report([15, 10], [5, 10]), machine, tokens=10, expert_bytes=1_000_000)
    assert found.compute_ms == pytest.approx((0.2, 0.4, 0.8))
    assert found.load_ms == pytest.approx((1.5, 3.0, 6.0))
    assert found.ms_per_token == pytest.approx((1.7, 3.4, 6.8))
    assert found.overlapped_ms_per_token == pytest.approx((1.5, 3.0, 6.0))
    assert found.tokens_per_second == pytest.approx(1000 / 3.4)
    assert found.overlapped_tokens_per_second == pytest.approx(1000 / 3.0)
    assert found.percentiles_ms is None


def test_layers_of_other_size_pay_by_their_bytes(machine):
    found = predict_latency(report([15, 10], [5, 10]), machine, tokens=10, expert_bytes=[1_000_000, 3_000_000])
    # 0.5 loads of 1 + 1 ms, 1 of 1 + 3 ms; 2 lookups of 0.1 ms, 2 of 0.3 ms
    assert found.load_ms[1] == pytest.approx(5.0)
    assert found.compute_ms[1] == pytest.approx(0.8)


def test_what_is_no_expert_and_what_was_measured_whole_count_as_given(machine):
    counted = report([15, 10], [5, 10])
    assert predict_latency(counted, machine, tokens=10, expert_bytes=10**6, other_ms=2.0).compute_ms[
        1
    ] == pytest.approx(2.4)
    whole = predict_latency(counted, machine, tokens=10, expert_bytes=10**6, compute_ms=9.0)
    assert whole.compute_ms == (9.0, 9.0, 9.0)
    assert whole.overlapped_ms_per_token[1] == 9.0
    assert "given as 9 ms" in whole.describe()


def test_the_queue_is_as_deep_as_an_event_misses(machine):
    shallow = predict_latency(report([15, 10], [5, 10]), machine, tokens=10, expert_bytes=10**6)
    deep = predict_latency(report([0, 0], [80, 80], top_k=8), machine, tokens=10, expert_bytes=10**6)
    given_ = predict_latency(report([15, 10], [5, 10]), machine, tokens=10, expert_bytes=10**6, queue_depth=4)
    assert [each.semantics["tiers"][0]["queue_depth"] for each in (shallow, deep, given_)] == [1, 4, 4]
    assert deep.load_ms[1] == pytest.approx(16 * 1.25)


def test_an_expert_that_several_tokens_of_one_pass_miss_is_loaded_once(machine):
    counted = replace(report([15, 10], [5, 10]), loads_per_layer=np.array([2, 3]))
    found = predict_latency(counted, machine, tokens=10, expert_bytes=10**6)
    assert found.load_ms[1] == pytest.approx(0.5 * 2)
    assert found.semantics["loads_per_token"] == 0.5


def test_tiers_add_up(machine):
    fast, slow = report([5, 5], [15, 15]), report([15, 15], [5, 5])
    found = predict_latency([Tier(fast, "device"), Tier(slow)], machine, tokens=10, expert_bytes=10**6)
    assert found.load_ms[1] == pytest.approx(3 * 0.1 + 1 * 2)
    assert found.describe().startswith(
        "predicted from 4.0 loads a token over device at depth 1 + disk-random at depth 1"
    )


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), capacity=st.integers(1, 4))
def test_misses_by_token_give_percentiles_and_the_true_overlap(machine, seed, capacity):
    trace = RoutingTrace(default_rng(seed).integers(0, 5, (20, 2, 1)), np.zeros(20, int), 5)
    counted = simulate(trace, "lru", capacity)
    each = np.array([simulate(trace.head(t + 1), "lru", capacity).misses_per_layer for t in range(20)])
    by_token = np.diff(each, axis=0, prepend=0)
    found = predict_latency(counted, machine, tokens=20, expert_bytes=10**6, misses_by_token=by_token)
    loads = by_token.sum(axis=1) * 2.0
    assert found.percentiles_ms == pytest.approx(
        {"p50": np.percentile(0.2 + loads, 50), "p95": np.percentile(0.2 + loads, 95)}
    )
    assert found.overlapped_ms_per_token[1] == pytest.approx(np.maximum(0.2, loads).mean())
    by_mean = predict_latency(counted, machine, tokens=20, expert_bytes=10**6)
    assert found.ms_per_token == pytest.approx(by_mean.ms_per_token)
    assert found.overlapped_ms_per_token[1] >= by_mean.overlapped_ms_per_token[1] - 1e-9


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"tokens": 0}, "cost.tokens must be >= 1"),
        ({"expert_bytes": 0}, r"cache.expert_bytes must be whole bytes >= 1"),
        ({"expert_bytes": [1, 2, 3]}, "one for each of 2 layers"),
        ({"expert_bytes": np.array(1.5)}, "cache.expert_bytes"),
        ({"expert_bytes": None}, "cache.expert_bytes must be given"),
        ({"other_ms": float("nan")}, "cost.other_ms"),
        ({"compute_ms": -1.0}, "cost.compute_ms"),
        ({"link": "disk"}, "did you mean 'disk-"),
        ({"report": []}, "cost.tiers must be at least one"),
        ({"misses_by_token": np.zeros((9, 2), int)}, "cost.misses_by_token must be shaped"),
        ({"misses_by_token": np.zeros((10, 2), int)}, "sum to the report's 15 loads"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(machine, broken, words):
    fine = {"report": report([15, 10], [5, 10]), "tokens": 10, "expert_bytes": 10**6}
    with pytest.raises(SettingError, match=words):
        predict_latency(calibration=machine, **(fine | broken))


def test_what_was_not_measured_is_named(machine):
    counted = report([15, 10], [5, 10])
    with pytest.raises(CalibrationError, match="must have measured 'memory'"):
        predict_latency(counted, machine, tokens=10, expert_bytes=10**6, link="memory")
    bare = replace(machine, matmul=None)
    with pytest.raises(CalibrationError, match="an expert's products, found none; give compute_ms"):
        predict_latency(counted, bare, tokens=10, expert_bytes=10**6)
    assert predict_latency(counted, bare, tokens=10, expert_bytes=10**6, compute_ms=1.0).compute_ms[0] == 1.0


def test_a_prediction_is_json(machine):
    found = predict_latency(report([15, 10], [5, 10]), machine, tokens=10, expert_bytes=10**6)
    told = json.loads(json.dumps(found.as_dict()))
    assert told["ms_per_token"]["p50"] == pytest.approx(3.4)
    assert told["semantics"]["tiers"][0]["capacity"] == 3
