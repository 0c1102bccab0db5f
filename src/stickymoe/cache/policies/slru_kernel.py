"""SLRU: new blocks are on probation, a second use protects; the oldest on probation leaves.

The protected part holds a share of the slots; who falls out of it is on probation again, as the newest there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.queue_kernel import Queues, clear_queues, join, leave, new_queues, oldest
from stickymoe.cache.policies.rules_kernel import binds

# What `protected` says of a block: on probation, protected, or on probation and its first use to come.
PROBATION, PROTECTED, AHEAD = 0, 1, 2


class SLRU(NamedTuple):
    """Two queues by last use, whose sentinels are `blocks` and `blocks` + 1; who is protected, and how many."""

    queues: Queues
    protected: np.ndarray
    number: np.ndarray
    blocks: int
    limit: int


def new(blocks: int, slots: int, share: float) -> SLRU:
    """Return the state for blocks 0 to `blocks` - 1, a `share` of `slots` protected."""
    protected, number = np.zeros(blocks, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    return SLRU(new_queues(blocks, 2), protected, number, blocks, int(share * slots))


def clear(state: SLRU) -> None:
    """Empty both queues."""
    clear_queues(state.queues, state.blocks)
    state.protected[:] = 0
    state.number[0] = 0


def touch(state: SLRU, block: int, weight: float) -> None:
    """Put a new block on probation, protect a known one; the protected beyond the limit go back."""
    if state.queues.newer[block] < 0:
        join(state.queues, state.blocks, block)
        return
    leave(state.queues, block)
    if state.protected[block] == AHEAD:
        join(state.queues, state.blocks, block)
        state.protected[block] = PROBATION
        return
    join(state.queues, state.blocks + 1, block)
    if state.protected[block] == PROBATION:
        state.protected[block] = PROTECTED
        state.number[0] += 1
        if state.number[0] > state.limit:
            back = state.queues.newer[state.blocks + 1]
            leave(state.queues, back)
            join(state.queues, state.blocks, back)
            state.protected[back] = PROBATION
            state.number[0] -= 1


def fetch(state: SLRU, block: int) -> None:
    """Put `block` on probation, its first use to come."""
    join(state.queues, state.blocks, block)
    state.protected[block] = AHEAD


def victim(state: SLRU, pinned: np.ndarray) -> int:
    """Choose the oldest last use on probation, or of the protected where nobody else is left."""
    block = oldest(state.queues, state.blocks, pinned)
    return block if block >= 0 else oldest(state.queues, state.blocks + 1, pinned)


def forget(state: SLRU, block: int) -> None:
    """Take `block` out."""
    leave(state.queues, block)
    state.number[0] -= state.protected[block] == PROTECTED
    state.protected[block] = PROBATION


binds(SLRU, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
