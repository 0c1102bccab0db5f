"""Means and ratios over seeds: paired by seed, with intervals that one seed does not have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.experiments.sweep_report.estimates import RESAMPLING, less, mean_of, paired, paired_ratio, ratio

numbers = st.floats(0.1, 10)


def perplexity(result):
    return result.read.perplexity


@pytest.fixture
def results(make_result):
    def make(values):
        return {seed: make_result("run", value) for seed, value in values.items()}

    return make


def test_a_mean_over_one_seed_has_no_interval(results):
    found = mean_of(results({1: 200.0}), perplexity)
    assert (found.mean, found.low, found.high, found.n) == (200.0, None, None, 1)


def test_differences_pair_equal_seeds_and_leave_the_others_out(results):
    before, after = results({1: 100.0, 2: 300.0, 3: 50.0}), results({2: 303.0, 1: 101.0, 4: 1.0})
    found = paired(before, after, lambda one, two: perplexity(two) - perplexity(one))
    assert found.mean == pytest.approx(2.0)
    assert found.n == 2


def test_what_all_seeds_share_widens_no_paired_interval(results):
    base = {1: 100.0, 2: 200.0, 3: 400.0}
    found = paired_ratio(results({seed: 1.1 * value for seed, value in base.items()}), results(base), perplexity)
    assert found.mean == pytest.approx(1.1)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)


def test_no_seed_in_common_is_no_value(results):
    assert paired_ratio(results({1: 1.5}), results({2: 1.5}), perplexity) is None
    assert paired(results({1: 1.5}), results({2: 1.5}), lambda one, two: 0.0) is None


def test_a_value_that_a_seed_lacks_is_no_value(results):
    runs = results({1: 2.0, 2: 3.0})
    assert mean_of(runs, lambda result: None if result is runs[2] else 1.0) is None


@settings(max_examples=20)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=5))
def test_a_ratio_is_redrawn_as_written_out(pairs):
    above, below = [list(each) for each in zip(*pairs, strict=True)]
    found = ratio(above, below)
    values = []
    for draw in RESAMPLING.draws(len(pairs)):
        top = sum(count * value for count, value in zip(draw, above, strict=True))
        values.append(top / sum(count * value for count, value in zip(draw, below, strict=True)))
    assert found.mean == pytest.approx(sum(above) / sum(below))
    assert found.high - found.mean == pytest.approx(RESAMPLING.half_width(np.std(values), len(pairs)), abs=1e-9)


def test_nothing_is_divided_by_nothing():
    assert ratio([], []) is None
    assert ratio([1.0], [0.0]) is None


def test_a_reduction_turns_the_interval_round():
    found = less(1, ratio([1.0, 2.0], [4.0, 5.0]))
    assert found.mean == pytest.approx(1 - 3 / 9)
    assert found.low < found.mean < found.high
    assert less(1, None) is None
