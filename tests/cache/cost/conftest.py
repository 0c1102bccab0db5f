"""A machine with round numbers."""

import pytest

from stickymoe.cache.calibration import Calibration, Link, Spread


def exactly(seconds: float) -> Spread:
    """Half the time at the fast end, twice at the slow one."""
    return Spread(seconds / 2, seconds, seconds * 2, 5)


@pytest.fixture
def machine() -> Calibration:
    """1 GB/s and 1 ms from the disk (half the latency at depth 4), 10 GB/s to the device, 0.1 ms an expert of 1 MB."""
    disk = [Link("disk-random", depth, 1_001_000, 1_000, exactly(1e-3 / depth + 1.001e-3), exactly(1e-3 / depth + 1e-6))
            for depth in (1, 4)]  # fmt: skip
    device = Link("device", 1, 1_000_000, 1_000, exactly(1e-4), exactly(1e-7))
    return Calibration(1_000_000, (*disk, device), exactly(1e-4), {}, "2026-01-01")
