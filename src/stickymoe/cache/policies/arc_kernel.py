"""ARC: blocks used once and blocks used again compete for the slots; a miss on one that left lately shifts the border.

Source: Megiddo and Modha, FAST 2003. Of an event's several misses all are touched before the first victim is chosen;
where the paper asks what the missed block was, the latest miss answers. A block fetched ahead stands where its miss
would have put it; the border moves at its first use. While its victim is chosen, those of the running event that were
used once do not count: they may not leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.queue_kernel import Queues, clear_queues, join, leave, new_queues, oldest
from stickymoe.cache.policies.rules_kernel import binds
from stickymoe.core.compiled import inlined

# The four queues: used once, used again, and those that left each of them lately.
ONCE, AGAIN, LEFT_ONCE, LEFT_AGAIN = 0, 1, 2, 3
NOWHERE = -1
USED = -1


class ARC(NamedTuple):
    """Where each block is, how many are in each queue, and the border.

    `target`: the size that ONCE should have; `latest`: where the latest miss came from; `remember`: whether the next to
    leave is kept in mind; `ahead`: 1 + where a block came from that was fetched ahead and not used yet, else USED.
    """

    queues: Queues
    queue: np.ndarray
    sizes: np.ndarray
    target: np.ndarray
    latest: np.ndarray
    remember: np.ndarray
    ahead: np.ndarray
    blocks: int
    slots: int


def new(blocks: int, slots: int) -> ARC:
    """Return the state for blocks 0 to `blocks` - 1 and a pool of `slots`."""
    where = np.full(blocks, NOWHERE, dtype=np.int64)
    sizes, latest, remember = np.zeros(4, np.int64), np.full(1, NOWHERE), np.ones(1, np.int64)
    ahead = np.full(blocks, USED, dtype=np.int64)
    return ARC(new_queues(blocks, 4), where, sizes, np.zeros(1), latest, remember, ahead, blocks, slots)


def clear(state: ARC) -> None:
    """Empty the queues and take the border back."""
    clear_queues(state.queues, state.blocks)
    state.queue[:] = NOWHERE
    state.sizes[:] = 0
    state.target[0] = 0
    state.latest[0] = NOWHERE
    state.remember[0] = 1
    state.ahead[:] = USED


def touch(state: ARC, block: int, weight: float) -> None:
    """Let a new block join those used once, any other those used again; one that left lately moves the border."""
    origin = state.queue[block]
    if state.ahead[block] != USED:
        _shift_border(state, state.ahead[block] - 1)
        state.ahead[block] = USED
        _move(state, block, origin)
        return
    _shift_border(state, origin)
    if origin != ONCE and origin != AGAIN:
        state.latest[0] = origin
    _move(state, block, ONCE if origin == NOWHERE else AGAIN)


def fetch(state: ARC, block: int) -> None:
    """Let `block` join those used once, or those used again if it left lately."""
    origin = state.queue[block]
    state.ahead[block] = origin + 1
    state.latest[0] = origin
    _move(state, block, ONCE if origin == NOWHERE else AGAIN)


def victim(state: ARC, pinned: np.ndarray) -> int:
    """Choose the oldest of the side that is over the border."""
    # blocks that wait for a slot are the newest used once; they do not count yet
    once, newest = state.sizes[ONCE], state.queues.older[state.blocks + ONCE]
    while newest < state.blocks and pinned[newest]:
        once -= 1
        newest = state.queues.older[newest]
    from_once = once > state.target[0] or (once == state.target[0] and state.latest[0] == LEFT_AGAIN)
    if state.latest[0] == NOWHERE:
        if once + state.sizes[LEFT_ONCE] >= state.slots:
            if state.sizes[LEFT_ONCE] > 0:
                _move(state, state.queues.newer[state.blocks + LEFT_ONCE], NOWHERE)
            else:
                from_once = True
                state.remember[0] = 0
        elif once + state.sizes[1:].sum() >= 2 * state.slots and state.sizes[LEFT_AGAIN] > 0:
            _move(state, state.queues.newer[state.blocks + LEFT_AGAIN], NOWHERE)
    block = NOWHERE
    if not from_once:
        block = oldest(state.queues, state.blocks + AGAIN, pinned)
    if block == NOWHERE:
        block = oldest(state.queues, state.blocks + ONCE, pinned)
    return block if block != NOWHERE else oldest(state.queues, state.blocks + AGAIN, pinned)


def forget(state: ARC, block: int) -> None:
    """Take `block` out and keep in mind that it was there."""
    where = LEFT_ONCE if state.queue[block] == ONCE else LEFT_AGAIN
    _move(state, block, where if state.remember[0] else NOWHERE)
    state.remember[0] = 1
    state.ahead[block] = USED


@inlined
def _shift_border(state: ARC, origin: int) -> None:
    once, again = max(state.sizes[LEFT_ONCE], 1), max(state.sizes[LEFT_AGAIN], 1)
    if origin == LEFT_ONCE:
        state.target[0] = min(state.target[0] + max(state.sizes[LEFT_AGAIN] / once, 1.0), float(state.slots))
    elif origin == LEFT_AGAIN:
        state.target[0] = max(state.target[0] - max(state.sizes[LEFT_ONCE] / again, 1.0), 0.0)


@inlined
def _move(state: ARC, block: int, queue: int) -> None:
    if state.queue[block] != NOWHERE:
        state.sizes[state.queue[block]] -= 1
        leave(state.queues, block)
    state.queue[block] = queue
    if queue != NOWHERE:
        state.sizes[queue] += 1
        join(state.queues, state.blocks + queue, block)


binds(ARC, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
