"""LRU: the block unused for longest leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.queue_kernel import Queues, clear_queues, join, leave, new_queues, oldest
from stickymoe.cache.policies.rules_kernel import binds


class LRU(NamedTuple):
    """Blocks in the order of their last use."""

    queue: Queues
    end: int


def new(blocks: int) -> LRU:
    """Return the state for blocks 0 to `blocks` - 1."""
    return LRU(new_queues(blocks), blocks)


def clear(state: LRU) -> None:
    """Forget every use."""
    clear_queues(state.queue, state.end)


def touch(state: LRU, block: int, weight: float) -> None:
    """Make `block` the most recent."""
    if state.queue.newer[block] >= 0:
        leave(state.queue, block)
    join(state.queue, state.end, block)


def victim(state: LRU, pinned: np.ndarray) -> int:
    """Choose the oldest last use."""
    return oldest(state.queue, state.end, pinned)


def forget(state: LRU, block: int) -> None:
    """Take `block` out."""
    leave(state.queue, block)


binds(LRU, clear=clear, touch=touch, victim=victim, forget=forget)
