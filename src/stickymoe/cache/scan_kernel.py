"""Compiled: slots whose victim is found by looking at each; for replays that change what is asked for or held.

State is a handful of arrays, one entry a block (layer * experts + expert) unless said otherwise:
`held[cache, slot]` blocks in their slots, `used[cache]` slots filled, `resident` (bool), `last_use` and `admitted`
(clock), `uses` (since the cold start), `spared` (the stamp of the last event that pinned the block).
"""

import numpy as np

from stickymoe.core.compiled import compiled

LRU, FIFO, LFU = range(3)


@compiled
def victim_slot(
    row: np.ndarray,
    used: int,
    policy: int,
    last_use: np.ndarray,
    admitted: np.ndarray,
    uses: np.ndarray,
    spared: np.ndarray,
    stamp: int,
) -> int:
    """Return the slot of the block that leaves first among those not pinned with `stamp`, or -1 if all are."""
    best = -1
    first = 0
    second = 0
    for slot in range(used):
        block = row[slot]
        if spared[block] == stamp:
            continue
        if policy == LFU:
            key, tie = uses[block], last_use[block]
        elif policy == FIFO:
            key, tie = admitted[block], last_use[block]
        else:
            key, tie = last_use[block], last_use[block]
        if best < 0 or key < first or (key == first and tie < second):
            best = slot
            first = key
            second = tie
    return best


@compiled
def admit(
    block: int,
    row: np.ndarray,
    used: np.ndarray,
    cache: int,
    capacity: int,
    policy: int,
    resident: np.ndarray,
    last_use: np.ndarray,
    admitted: np.ndarray,
    uses: np.ndarray,
    spared: np.ndarray,
    stamp: int,
    clock: int,
    forced: bool,
) -> bool:
    """Give `block` a slot, at the price of a victim if all are taken; return whether it got one.

    Pinned blocks are victims only if `forced` and nothing else is left; then the one that the policy likes least goes
    without, be it `block` itself.
    """
    admitted[block] = clock
    if used[cache] < capacity:
        slot = used[cache]
        used[cache] += 1
    else:
        slot = victim_slot(row, used[cache], policy, last_use, admitted, uses, spared, stamp)
        if slot < 0 and forced:
            slot = victim_slot(row, used[cache], policy, last_use, admitted, uses, spared, -1)
            worst = row[slot]
            if policy == LFU and uses[block] != uses[worst]:
                itself = uses[block] < uses[worst]
            else:
                itself = policy != FIFO and last_use[block] < last_use[worst]
            if itself:
                return False
        if slot < 0:
            return False
        resident[row[slot]] = False
    row[slot] = block
    resident[block] = True
    return True


@compiled
def start_cold(used: np.ndarray, resident: np.ndarray, uses: np.ndarray) -> None:
    """Empty every cache and forget every count."""
    used[:] = 0
    resident[:] = False
    uses[:] = 0
