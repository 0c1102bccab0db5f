"""Reads of a file: at random and in sequence, several at once, past the page cache or through it."""

import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice, repeat

import numpy as np

from stickymoe.cache.calibration.record import Link, LinkName, Spread
from stickymoe.cache.calibration.scratch_file import ScratchFile, drop_page_cache
from stickymoe.cache.calibration.timing import spread_of
from stickymoe.core.errors import StorageError

ALIGNMENT = 4096  # what O_DIRECT asks of offsets, lengths and buffers on every common disk
READS_A_BATCH = 8


def aligned(num_bytes: int) -> int:
    """Round up to a length that can be read past the page cache."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class Reader:
    """Reads blocks of one descriptor with `queue_depth` threads, each into its own page-aligned buffer."""

    def __init__(self, descriptor: int, block_bytes: int, queue_depth: int, *, forget: bool) -> None:
        """Start the threads.

        Args:
            descriptor: An open file.
            block_bytes: Bytes a read.
            queue_depth: Reads under way at once.
            forget: Drop the page cache before each batch, where reads cannot bypass it.
        """
        self._descriptor, self._block_bytes, self._forget = descriptor, block_bytes, forget
        self._depth = queue_depth
        self._buffers = [mmap.mmap(-1, aligned(block_bytes)) for _ in range(queue_depth)]
        self._pool = ThreadPoolExecutor(queue_depth)

    def __enter__(self) -> "Reader":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the threads and free the buffers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for buffer in self._buffers:
            buffer.close()

    def seconds_a_read(self, offsets: list[int]) -> float:
        """Read one block at each offset and return the time over their number."""
        if self._forget:
            drop_page_cache(self._descriptor)
        shares = [offsets[worker :: self._depth] for worker in range(self._depth)]
        start = time.perf_counter()
        for done in [self._pool.submit(self._read, *each) for each in enumerate(shares)]:
            done.result()
        return (time.perf_counter() - start) / len(offsets)

    def _read(self, worker: int, offsets: list[int]) -> None:
        with memoryview(self._buffers[worker]) as whole, whole[: self._block_bytes] as view:
            for offset in offsets:
                if os.preadv(self._descriptor, [view], offset) != self._block_bytes:
                    raise StorageError(f"could not measure reads: the disk gave less than was asked for at {offset}")


def measure_reads(
    file: ScratchFile, name: LinkName, block_bytes: int, queue_depth: int, *, seconds: float, seed: int = 0
) -> Link:
    """Time reads of an expert's size and of one page.

    Args:
        file: Where to read.
        name: `disk-random`, `disk-sequential` or `page-cache`.
        block_bytes: Size of an expert, a multiple of `ALIGNMENT`.
        queue_depth: Reads under way at once.
        seconds: Time to spend on each of both sizes.
        seed: Of the order of random reads.
    """
    warm = name == "page-cache"
    descriptor = file.buffered if warm or file.direct is None else file.direct
    spreads: list[Spread] = []
    for size in (block_bytes, ALIGNMENT):
        count = min(max(READS_A_BATCH, 2 * queue_depth), file.size // size)
        batches = _batches(file.size, size, count, sequential=name == "disk-sequential", seed=seed)
        if warm:
            batches = repeat(next(batches))
        with Reader(descriptor, size, queue_depth, forget=file.direct is None and not warm) as reader:
            spreads.append(spread_of(partial(_next_batch, reader, batches), seconds))
    return Link(name, queue_depth, block_bytes, ALIGNMENT, *spreads)


def _next_batch(reader: Reader, batches: Iterator[list[int]]) -> float:
    return reader.seconds_a_read(next(batches))


def _batches(size: int, block_bytes: int, count: int, *, sequential: bool, seed: int) -> Iterator[list[int]]:
    """Yield offsets for ever, `count` at a time; a file is read to its end before a block comes again."""
    places = np.arange(size // block_bytes) * block_bytes
    if not sequential:
        places = np.random.default_rng(seed).permutation(places)
    endless = cycle(places.tolist())
    while True:
        yield list(islice(endless, count))
