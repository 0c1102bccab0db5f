"""A link's line through two measured sizes, and which link is picked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.cache.calibration import Calibration, CalibrationError, Link, Spread
from stickymoe.core.errors import SettingError

SECONDS = st.floats(1e-6, 10.0)


def spread(seconds: float) -> Spread:
    return Spread(0.5 * seconds, seconds, 2 * seconds, 5)


def calibration(*depths: int) -> Calibration:
    links = tuple(
        Link("disk-random", depth, 2**20, 4096, spread(1e-3 / depth), spread(1e-4 / depth)) for depth in depths
    )
    return Calibration(2**20, links, None, {"cores": 2}, "2026-01-01")


def test_latency_and_bandwidth_by_hand():
    # 1,001,000 bytes in 2 ms, 1,000 bytes in 1 ms: 1 GB/s and 0.999 ms
    link = Link("device", 1, 1_001_000, 1_000, spread(2e-3), spread(1e-3))
    assert link.bandwidth_bytes_s() == pytest.approx(1e9)
    assert link.latency_s() == pytest.approx(0.999e-3)
    assert link.seconds(501_000) == pytest.approx(1.5e-3)
    assert link.seconds(1_001_000, "p80") == pytest.approx(4e-3)


@given(SECONDS, SECONDS)
def test_an_expert_of_the_measured_size_costs_what_was_measured(large, small):
    link = Link("memory", 1, 2**20, 4096, spread(large), spread(small))
    assert link.seconds(2**20) == pytest.approx(large)
    assert link.latency_s() >= 0
    assert link.seconds(4096) <= large * 1.0000001


def test_spreads_are_percentiles_of_their_samples():
    assert Spread.of(range(1, 12)) == Spread(3.0, 6.0, 9.0, 11)


def test_the_largest_measured_depth_up_to_the_one_asked_for_is_picked():
    measured = calibration(16, 1, 4)
    assert [measured.link("disk-random", depth).queue_depth for depth in (None, 1, 3, 4, 15, 99)] == [1, 1, 1, 4, 4, 16]
    assert calibration(4, 8).link("disk-random", 2).queue_depth == 4


def test_a_link_that_was_not_measured_is_named_with_those_that_were():
    with pytest.raises(CalibrationError, match="measured 'device', found disk-random; calibrate on the machine"):
        calibration(1).link("device")
    with pytest.raises(SettingError, match="did you mean 'disk-random'"):
        calibration(1).link("disk-rand")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Spread(2.0, 1.0, 3.0, 3), "p20 <= p50 <= p80"),
        (lambda: Link("memory", 1, 4096, 4096, spread(1), spread(1)), "small_bytes must be below"),
        (lambda: calibration(1, 1), "one a name and queue depth"),
    ],
)
def test_records_that_contradict_themselves_are_refused(build, words):
    with pytest.raises(SettingError, match=words):
        build()
