"""Times: the predictions of `cache.cost`, what the next GiB saves, and the reason where there are none."""

import pytest

from stickymoe.cache import simulate
from stickymoe.cache.calibration import Calibration, Link, Spread
from stickymoe.cache.cost import predict_latency
from stickymoe.experiments.diagnosis.inputs import diagnose_input, summary_lines
from stickymoe.experiments.diagnosis.report import render_diagnosis

SLOW, FAST = Spread(0.010, 0.010, 0.010, 3), Spread(0.0001, 0.0001, 0.0001, 3)
MACHINE = Calibration(
    2**20, (Link("disk-random", 1, 2**20, 4096, SLOW, FAST),), FAST, {}, "2026-01-01T00:00:00+00:00"
)  # fmt: skip


@pytest.fixture(scope="module")
def timed(full_trace):
    return diagnose_input(full_trace, "x", budget={"slots": 4}, policies=("fifo",), calibration=MACHINE)


def test_every_row_is_the_prediction_for_its_replay(full_trace, timed):
    rows = {row.name: row for row in timed.timing.rows}
    for name, policy, slots in (("LRU", "lru", 4), ("Belady (bound)", "belady", 4), ("LRU, 16 slots", "lru", 16)):
        report = simulate(full_trace, policy, slots)
        expected = predict_latency(
            report, MACHINE, tokens=full_trace.num_tokens, expert_bytes=full_trace.expert_bytes.tolist()
        )
        assert rows[name].ms_per_token == pytest.approx(expected.ms_per_token[1])
        assert rows[name].tokens_per_second == pytest.approx(1000 / expected.ms_per_token[1])


def test_the_next_gib_is_worth_the_difference_over_its_size(timed):
    rows = {row.name: row for row in timed.timing.rows}
    gib = (16 - 4) * 4 * 2**20 / 2**30
    saved = rows["LRU"].ms_per_token - rows["LRU, 16 slots"].ms_per_token
    assert timed.timing.ms_saved_per_gib == pytest.approx(saved / gib)


def test_times_stand_in_summary_and_page(timed):
    assert any(line.startswith("time") for line in summary_lines(timed))
    assert "What does it cost in time?" in render_diagnosis(timed)


def test_what_is_missing_for_times_is_said(plain_trace, plain_diagnosis):
    assert "stickymoe calibrate" in plain_diagnosis.unanswered["times"]
    found = diagnose_input(plain_trace, "x", budget={"slots": 4}, policies=("fifo",), calibration=MACHINE)
    assert "--expert-bytes" in found.unanswered["times"]
    assert found.timing is None
