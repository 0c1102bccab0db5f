"""How a time is taken: batches of equal work until there are enough of them or the time is up."""

import time
from collections.abc import Callable

from stickymoe.cache.calibration.record import Spread

MIN_SAMPLES = 3
MAX_SAMPLES = 64


def spread_of(work: Callable[[], float], seconds: float) -> Spread:
    """Call `work`, which returns the seconds of one unit, for about `seconds` and summarise what it returns.

    Args:
        work: One batch; the first call warms up and does not count.
        seconds: Time to spend. At least `MIN_SAMPLES` calls are made however long they take.
    """
    work()
    samples: list[float] = []
    stop = time.perf_counter() + seconds
    while len(samples) < MIN_SAMPLES or (time.perf_counter() < stop and len(samples) < MAX_SAMPLES):
        samples.append(max(work(), 1e-9))  # a clock too coarse for the work must not give a time of 0
    return Spread.of(samples)
