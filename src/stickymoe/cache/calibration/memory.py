"""Copies inside memory and an expert's matrix products: what a cached expert costs."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from stickymoe.cache.calibration.record import Link, LinkName, Spread
from stickymoe.cache.calibration.timing import spread_of

SMALL_BYTES = 4096
RING_BYTES = 2**28  # more than a processor's caches, so that copies come from memory
REPEATS = 4

# Moves that many bytes and returns the seconds it took, the last byte's arrival included.
Copy = Callable[[int], float]


def memory_copy(largest_bytes: int) -> Copy:
    """Return a timed copy from memory to memory, its source another region each time."""
    ring = np.zeros(max(RING_BYTES, 2 * largest_bytes), dtype=np.uint8)
    ring[::4096] = 1  # touched, so that every page is there
    target = np.zeros(largest_bytes, dtype=np.uint8)
    place = 0

    def copy(num_bytes: int) -> float:
        nonlocal place
        if place + num_bytes > ring.size:
            place = 0
        source = ring[place : place + num_bytes]
        place += max(num_bytes, SMALL_BYTES)
        start = time.perf_counter()
        np.copyto(target[:num_bytes], source)
        return time.perf_counter() - start

    return copy


def measure_copies(copy: Copy, name: LinkName, block_bytes: int, *, seconds: float) -> Link:
    """Time copies of an expert's size and of one page, one after the other.

    Args:
        copy: Does and times one copy.
        name: `memory` or `device`.
        block_bytes: Size of an expert.
        seconds: Time to spend on each of both sizes.
    """
    sizes = (block_bytes, SMALL_BYTES)
    spreads = [spread_of(partial(_mean, partial(copy, size)), seconds) for size in sizes]
    return Link(name, 1, block_bytes, SMALL_BYTES, *spreads)


def vector_products(expert_bytes: int) -> Callable[[], float]:
    """Return a timed stand-in for one expert on one token: a float32 matrix of that many bytes times a vector.

    One token uses every weight once, so memory bandwidth decides, not the shapes. The matrices come from a ring that
    no processor cache holds.
    """
    columns = max(1, int((expert_bytes / 4) ** 0.5))
    rows = max(1, expert_bytes // (4 * columns))
    copies = max(2, RING_BYTES // max(1, 4 * rows * columns))
    weights = np.full((min(copies, 4096), rows, columns), 0.5, dtype=np.float32)
    token = np.ones(columns, dtype=np.float32)
    place = 0

    def product() -> float:
        nonlocal place
        place = (place + 1) % len(weights)
        start = time.perf_counter()
        weights[place] @ token
        return time.perf_counter() - start

    return product


def measure_matmul(product: Callable[[], float], *, seconds: float) -> Spread:
    """Summarise the time of one expert's matrix products for one token."""
    return spread_of(partial(_mean, product), seconds)


def _mean(work: Callable[[], float]) -> float:
    return sum(work() for _ in range(REPEATS)) / REPEATS
