"""Prefetch in milliseconds: what stalls, what hides, and when the link is the limit."""

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.cache import simulate
from stickymoe.cache.cost import predict_latency, predict_prefetched_latency
from stickymoe.cache.prefetch import PrefetchReport, simulate_prefetch
from stickymoe.traces import RoutingTrace

EXPERT = 10**6


def report(hits: int, late: int, misses: int, fetched: int) -> PrefetchReport:
    counts = [np.array([count]) for count in (hits, late, misses, fetched, fetched, misses + late)]
    return PrefetchReport(*counts, None, {"capacity": 1})


def test_fetches_hide_until_the_link_is_busy_all_the_time(machine):
    # 10 tokens; 100 lookups of 0.1 ms: 1 ms of computing a token; 2 ms a load
    hidden = predict_prefetched_latency(report(90, 4, 6, 5), machine, tokens=10, expert_bytes=EXPERT)
    assert hidden.ms_per_token[1] == pytest.approx(1 + (6 + 4) * 2 / 10)
    assert hidden.load_ms[1] == pytest.approx((6 + 5) * 2 / 10)
    wasteful = predict_prefetched_latency(report(90, 4, 6, 50), machine, tokens=10, expert_bytes=EXPERT, queue_depth=1)
    assert wasteful.ms_per_token[1] == pytest.approx((6 + 50) * 2 / 10)
    assert "5.6 loads a token over disk-random at depth 1" in wasteful.describe()


def test_without_prefetch_both_predictions_are_one(machine):
    trace = RoutingTrace(default_rng(0).integers(0, 6, (40, 2, 1)), np.zeros(40, int), 6)
    ahead = simulate_prefetch(trace, "oracle", 3, budget=0)
    plain = simulate(trace, "lru", 3)
    both = [
        predict(each, machine, tokens=40, expert_bytes=[EXPERT, 2 * EXPERT])
        for predict, each in ((predict_prefetched_latency, ahead), (predict_latency, plain))
    ]
    assert both[0].ms_per_token == pytest.approx(both[1].ms_per_token)
    assert both[0].load_ms == pytest.approx(both[1].load_ms)


def test_an_oracle_in_time_reaches_the_overlapped_bound(machine):
    trace = RoutingTrace(default_rng(0).integers(0, 6, (40, 2, 1)), np.zeros(40, int), 6)
    ahead = predict_prefetched_latency(
        simulate_prefetch(trace, "oracle", 3, budget=1, lookahead=2), machine, tokens=40, expert_bytes=EXPERT
    )
    plain = predict_latency(simulate(trace, "lru", 3), machine, tokens=40, expert_bytes=EXPERT)
    assert plain.overlapped_ms_per_token[1] <= ahead.ms_per_token[1] < plain.ms_per_token[1]
    assert ahead.load_ms[1] == pytest.approx(plain.load_ms[1])
