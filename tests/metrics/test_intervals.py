"""Intervals, beside tables, the textbook's t interval and simulated experiments."""

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.core.errors import SettingError
from stickymoe.metrics import Resampling, intervals, mean_interval, paired_interval
from stickymoe.metrics.intervals import resampled, student_quantile


@pytest.mark.parametrize(
    ("freedom", "probability", "expected"),
    [
        (1, 0.975, 12.7062),
        (2, 0.975, 4.3027),
        (3, 0.95, 2.3534),
        (10, 0.975, 2.2281),
        (15, 0.975, 2.1314),
        (30, 0.995, 2.7500),
        (100, 0.975, 1.9840),
        (10**6, 0.975, 1.95997),
    ],
)
def test_students_quantiles_are_those_of_the_tables(freedom, probability, expected):
    assert student_quantile(freedom, probability) == pytest.approx(expected, abs=6e-5)


def test_students_quantiles_run_on_where_the_normal_takes_over():
    assert student_quantile(1000, 0.975) > student_quantile(1001, 0.975)
    assert student_quantile(1000, 0.975) == pytest.approx(student_quantile(1001, 0.975), abs=1e-5)


def test_the_interval_of_a_mean_is_the_textbooks():
    values = default_rng(0).normal(size=12)
    found = mean_interval(values, Resampling(resamples=20_000))
    half = 2.20099 * values.std(ddof=1) / 12**0.5
    assert (found.mean, found.n) == (pytest.approx(values.mean()), 12)
    assert found.high - found.mean == pytest.approx(half, rel=0.02)
    assert found.mean - found.low == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize("n", [3, 12])
def test_ninety_five_of_a_hundred_intervals_hold_the_truth(n):
    rng = default_rng(n)
    found = [mean_interval(rng.normal(size=n), Resampling(resamples=200)) for _ in range(400)]
    held = sum(each.low <= 0 <= each.high for each in found) / 400
    assert 0.92 <= held <= 0.98


def test_equal_seeds_give_equal_intervals_and_others_do_not():
    values = [0.1, 0.5, 0.2, 0.9]
    assert mean_interval(values, Resampling(seed=3)) == mean_interval(values, Resampling(seed=3))
    assert mean_interval(values, Resampling(seed=3)) != mean_interval(values, Resampling(seed=4))
    wide, narrow = (mean_interval(values, Resampling(confidence=share)) for share in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_one_value_has_a_mean_and_no_interval():
    found = mean_interval([0.25])
    assert (found.mean, found.low, found.high, found.n) == (0.25, None, None, 1)


def test_a_paired_interval_does_not_see_what_the_pairs_share():
    shared = default_rng(1).normal(size=20)
    after = shared + 0.1 + default_rng(2).normal(size=20) / 100
    found = paired_interval(shared, after)
    assert 0.08 < found.low < found.mean < found.high < 0.12
    assert found == mean_interval(after - shared)


@pytest.mark.parametrize("values", [[], [float("nan"), 1.0], np.ones((1, 2)), [float("inf")]])
def test_values_that_have_no_mean_are_refused(values):
    with pytest.raises(SettingError, match="values must be at least one finite number each"):
        mean_interval(values)


def test_settings_out_of_range_are_refused():
    with pytest.raises(SettingError, match=r"resamples must be >= 2, got 1"):
        Resampling(resamples=1)
    with pytest.raises(SettingError, match=r"confidence must be between 0 and 1, got 1\.0"):
        Resampling(confidence=1.0)
    with pytest.raises(SettingError, match="as many before as after, got 1 and 2"):
        paired_interval([1.0], [1.0, 2.0])


def test_resamples_cut_into_slices_are_the_same(monkeypatch):
    sums, draws = default_rng(0).random((5, 3)), Resampling(resamples=50).draws(5)
    whole = resampled(sums, lambda each: each.sum(axis=-1), draws)
    monkeypatch.setattr(intervals, "AT_ONCE", 7)
    assert np.allclose(resampled(sums, lambda each: each.sum(axis=-1), draws), whole, rtol=1e-12)
    assert whole.shape == (50,)
