"""Three ways for a condition to end, worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.experiments.sweep_report.conditions import (
    Condition,
    Scale,
    Verdict,
    at_least,
    at_most,
    open_unless,
    together,
)
from stickymoe.metrics.intervals import Interval

SCALE = Scale(lambda value: f"{value:.2f}", 0.1)
HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(0.2, 0.1, 0.3, 3), HOLDS),
        (Interval(0.4, 0.3, 0.5, 3), HOLDS),  # the end lies on the threshold
        (Interval(0.5, 0.4, 0.6, 3), OPEN),
        (Interval(0.8, 0.6, 1.0, 3), FAILS),
        (Interval(0.39, None, None, 1), HOLDS),
        (Interval(0.45, None, None, 1), OPEN),
        (Interval(0.55, None, None, 1), OPEN),
        (Interval(0.61, None, None, 1), FAILS),
        (None, OPEN),
    ],
)
def test_at_most_a_half(interval, verdict):
    found = at_most("asked", interval, 0.5, SCALE, "missing")
    assert found.verdict is verdict
    assert bool(found.reason) == (verdict is OPEN)


def test_a_value_is_written_with_its_interval_or_as_one_seeds():
    assert at_most("", Interval(0.2, 0.1, 0.3, 3), 1, SCALE, "").value == "0.20 [0.10, 0.30]"
    assert at_least("", Interval(0.2, None, None, 1), 1, SCALE, "").value == "0.20 (one seed)"


def test_what_is_missing_is_the_reason():
    assert at_least("asked", None, 0.5, SCALE, "no run of soft-0.1") == Condition(
        "asked", "", OPEN, "no run of soft-0.1"
    )


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1))
def test_at_least_mirrors_at_most(mean, half, threshold):
    above = at_least("", Interval(mean, mean - half, mean + half, 3), threshold, SCALE, "")
    below = at_most("", Interval(-mean, -mean - half, -mean + half, 3), -threshold, SCALE, "")
    assert above.verdict is below.verdict


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [([HOLDS, HOLDS], HOLDS), ([HOLDS, OPEN], OPEN), ([OPEN, FAILS, HOLDS], FAILS), ([], OPEN)],
)
def test_one_failure_is_enough_and_all_must_hold(verdicts, whole):
    assert together([Condition("", "", verdict) for verdict in verdicts]) is whole


def test_only_the_verdict_that_would_prove_nothing_is_taken_back():
    held, failed = Condition("", "1", HOLDS), Condition("", "1", FAILS)
    assert open_unless(False, held, HOLDS, "why") == Condition("", "1", OPEN, "why")
    assert open_unless(True, held, HOLDS, "why") is held
    assert open_unless(False, failed, HOLDS, "why") is failed
