"""Queues of blocks in arrays: order in constant time, for the policies that go by order alone.

Each block has a `newer` and an `older` neighbour; a queue is a ring closed by its own sentinel, a number past the
blocks. `newer[sentinel]` is the oldest block, `older[sentinel]` the newest; an empty queue's are the sentinel itself. A
block in no queue has `newer == -1`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.core.compiled import inlined


class Queues(NamedTuple):
    """Several queues over the same blocks; a block is in one of them at most."""

    newer: np.ndarray
    older: np.ndarray


def new_queues(blocks: int, queues: int = 1) -> Queues:
    """Return `queues` empty queues, whose sentinels are `blocks`, `blocks + 1`, ..."""
    links = np.full((2, blocks + queues), -1, dtype=np.int64)
    links[:, blocks:] = np.arange(blocks, blocks + queues)
    return Queues(links[0], links[1])


@inlined
def clear_queues(queues: Queues, blocks: int) -> None:
    """Empty all queues."""
    queues.newer[:blocks] = -1
    for sentinel in range(blocks, queues.newer.size):
        queues.newer[sentinel] = sentinel
        queues.older[sentinel] = sentinel


@inlined
def join(queues: Queues, sentinel: int, block: int) -> None:
    """Make `block`, in no queue, the newest of a queue."""
    newest = queues.older[sentinel]
    queues.newer[newest] = block
    queues.older[block] = newest
    queues.newer[block] = sentinel
    queues.older[sentinel] = block


@inlined
def leave(queues: Queues, block: int) -> None:
    """Take `block` out of its queue."""
    newer, older = queues.newer[block], queues.older[block]
    queues.newer[older] = newer
    queues.older[newer] = older
    queues.newer[block] = -1


@inlined
def oldest(queues: Queues, sentinel: int, pinned: np.ndarray) -> int:
    """Return the oldest block of a queue that is not pinned, or -1."""
    block = queues.newer[sentinel]
    while block != sentinel and pinned[block]:
        block = queues.newer[block]
    return -1 if block == sentinel else block
