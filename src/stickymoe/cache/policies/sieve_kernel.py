"""SIEVE: a hand goes from the oldest admission to the newest; the first block unused since it last came by leaves.

Source: Zhang et al., NSDI 2024.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.queue_kernel import Queues, clear_queues, join, leave, new_queues
from stickymoe.cache.policies.rules_kernel import binds

# What `visited` says of a block.
UNVISITED, VISITED, AHEAD = 0, 1, 2


class Sieve(NamedTuple):
    """Blocks in the order of admission, who was used since the hand passed, and where the hand is (`end`: nowhere)."""

    queue: Queues
    visited: np.ndarray
    hand: np.ndarray
    end: int


def new(blocks: int) -> Sieve:
    """Return the state for blocks 0 to `blocks` - 1."""
    return Sieve(new_queues(blocks), np.zeros(blocks, dtype=np.uint8), np.full(1, blocks, dtype=np.int64), blocks)


def clear(state: Sieve) -> None:
    """Empty the queue."""
    clear_queues(state.queue, state.end)
    state.visited[:] = 0
    state.hand[0] = state.end


def touch(state: Sieve, block: int, weight: float) -> None:
    """Let a new block join unvisited; mark a held one, but for the first use of one fetched ahead."""
    if state.queue.newer[block] < 0:
        join(state.queue, state.end, block)
        state.visited[block] = UNVISITED
    else:
        state.visited[block] = UNVISITED if state.visited[block] == AHEAD else VISITED


def fetch(state: Sieve, block: int) -> None:
    """Let `block` join, its first use to come."""
    join(state.queue, state.end, block)
    state.visited[block] = AHEAD


def victim(state: Sieve, pinned: np.ndarray) -> int:
    """Move the hand to the first unvisited block, taking the marks on its way; pinned ones keep theirs."""
    newer, end = state.queue.newer, state.end
    block = state.hand[0]
    rounds = 0
    while rounds < 3:
        if block == end:
            block = newer[end]
            rounds += 1
        elif pinned[block]:
            block = newer[block]
        elif state.visited[block] == VISITED:
            state.visited[block] = UNVISITED
            block = newer[block]
        else:
            after = newer[block]
            while after != end and pinned[after]:
                after = newer[after]
            state.hand[0] = after
            return int(block)
    return -1


def forget(state: Sieve, block: int) -> None:
    """Take `block` out; a hand on it moves on."""
    if state.hand[0] == block:
        state.hand[0] = state.queue.newer[block]
    leave(state.queue, block)


binds(Sieve, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
