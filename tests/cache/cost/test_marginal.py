"""Break-even hit rates and the value of a GiB, worked by hand."""

import numpy as np
import pytest

from stickymoe.cache.cost import break_even_hit_rate, predict_latency, value_of_cache
from stickymoe.cache.report import CacheReport
from stickymoe.core.errors import SettingError

GIB = 2**30


def predicted(machine, misses: int):
    counted = CacheReport(np.array([100 - misses]), np.array([misses]), np.zeros(1, int), {"top_k": 1})
    return predict_latency(counted, machine, tokens=10, expert_bytes=10**6, queue_depth=1)


def test_break_even_by_hand(machine):
    # 10 lookups of 2 ms a miss; computing takes 1 ms: half a miss is hidden, 9.5 of 10 must hit
    assert break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6) == pytest.approx(0.95)
    # 5 ms in all leave 4 for loads: two misses
    assert break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6, target_ms=5.0) == pytest.approx(0.8)
    assert break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6, target_ms=500.0) == 0.0
    assert break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6, compute_ms=10.0) == pytest.approx(0.5)
    with pytest.raises(SettingError, match=r"cost.target_ms must be >= the 1 ms a token takes to compute, got 0.5"):
        break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6, target_ms=0.5)


def test_a_prediction_at_the_break_even_rate_takes_just_that_time(machine):
    for misses in (1, 20, 99):
        time = predicted(machine, misses).ms_per_token[1]
        rate = break_even_hit_rate(machine, lookups_per_token=10, expert_bytes=10**6, target_ms=time)
        assert rate == pytest.approx(1 - misses / 100)


def test_the_value_of_a_gib_by_hand(machine):
    # 6, 3 and 0 misses a token of 2 ms, 1 ms of computing
    steps = value_of_cache([GIB, 2 * GIB, 4 * GIB], [predicted(machine, misses) for misses in (60, 30, 0)])
    assert [(step.from_bytes, step.to_bytes) for step in steps] == [(GIB, 2 * GIB), (2 * GIB, 4 * GIB)]
    assert [step.ms_saved_per_gib for step in steps] == pytest.approx([6.0, 3.0])
    assert [step.overlapped_ms_saved_per_gib for step in steps] == pytest.approx([6.0, 2.5])


@pytest.mark.parametrize("sizes", [[GIB], [2 * GIB, GIB], [GIB, GIB]])
def test_sizes_that_do_not_rise_or_do_not_fit_are_refused(machine, sizes):
    with pytest.raises(SettingError, match=r"cost.sizes_bytes must be rising, one a prediction"):
        value_of_cache(sizes, [predicted(machine, 2), predicted(machine, 1)])
