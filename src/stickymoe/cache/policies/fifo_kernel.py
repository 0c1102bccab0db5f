"""FIFO: the block admitted first leaves, whatever its use since."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.queue_kernel import Queues, clear_queues, join, leave, new_queues, oldest
from stickymoe.cache.policies.rules_kernel import binds


class FIFO(NamedTuple):
    """Blocks in the order of their admission."""

    queue: Queues
    end: int


def new(blocks: int) -> FIFO:
    """Return the state for blocks 0 to `blocks` - 1."""
    return FIFO(new_queues(blocks), blocks)


def clear(state: FIFO) -> None:
    """Empty the queue."""
    clear_queues(state.queue, state.end)


def touch(state: FIFO, block: int, weight: float) -> None:
    """Let a new block join; a held one keeps its place."""
    if state.queue.newer[block] < 0:
        join(state.queue, state.end, block)


def victim(state: FIFO, pinned: np.ndarray) -> int:
    """Choose the oldest admission."""
    return oldest(state.queue, state.end, pinned)


def forget(state: FIFO, block: int) -> None:
    """Take `block` out."""
    leave(state.queue, block)


binds(FIFO, clear=clear, touch=touch, victim=victim, forget=forget)
