"""Reuse distances in machine code: how many other blocks were used since a block's last use.

Uses get slots of time, one after the other; a bit marks the slot of each block's last use. The distance is the number
of bits after a block's own, counted 64 at a time, and 4096 at a time over longer stretches. When the slots run out, the
blocks' last uses are moved together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from stickymoe.core.compiled import borrowed, compiled, inlined

# What stands in place of a distance: not used since all was forgotten; nobody asked for.
FIRST_USE, EMPTY = -1, -2
# Bits of a word and words of a stretch, as shifts.
WORD, STRETCH = 6, 6


class Recency(NamedTuple):
    """`slot` of each block's last use (-1: none), `owner` of each slot, a bit a live slot, how many bits a stretch."""

    slot: np.ndarray
    owner: np.ndarray
    words: np.ndarray
    stretches: np.ndarray
    now: np.ndarray


def new_recency(blocks: int) -> Recency:
    """Return the state of blocks that were not used yet."""
    stretches = max(1, -(-4 * blocks >> (WORD + STRETCH)))
    slots = stretches << (WORD + STRETCH)
    return Recency(
        slot=np.full(blocks, -1, dtype=np.int64),
        owner=np.zeros(slots, dtype=np.int64),
        words=np.zeros(slots >> WORD, dtype=np.uint64),
        stretches=np.zeros(stretches, dtype=np.int64),
        now=np.zeros(1, dtype=np.int64),
    )


def _bits_of(typing_context: Any, word: Any) -> Any:
    """Return how many bits of a word are set."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), code


bits_of: Any = intrinsic(_bits_of)


@compiled
def distances(
    recency: Recency,
    ids: np.ndarray,
    experts: int,
    groups: np.ndarray,
    cold: np.ndarray,
    together: bool,
    found: np.ndarray,
) -> None:
    """Write the distance of each slot of `ids` (rows, layers, slots) to `found`, or FIRST_USE or EMPTY.

    `groups` bounds the rows that are one event at each layer, `cold` tells before which of them all is forgotten.
    Together: an event's blocks are all looked up before any of them counts as used; otherwise one after the other.
    """
    recency, ids, groups, found = borrowed(recency), borrowed(ids), borrowed(groups), borrowed(found)
    layers, slots = ids.shape[1], ids.shape[2]
    for group in range(groups.size - 1):
        if cold[group]:
            _clear(recency)
        start, stop = max(groups[group], 0), groups[group + 1]
        for layer in range(layers):
            for row in range(start, stop):
                for slot in range(slots):
                    block = layer * experts + ids[row, layer, slot]
                    if ids[row, layer, slot] < 0 or block < 0:
                        found[row, layer, slot] = EMPTY
                        continue
                    found[row, layer, slot] = FIRST_USE
                    if recency.slot[block] >= 0:
                        found[row, layer, slot] = _distance(recency, block)
                    if not together:
                        _use(recency, block)
            if not together:
                continue
            for row in range(start, stop):
                for slot in range(slots):
                    block = layer * experts + ids[row, layer, slot]
                    if ids[row, layer, slot] < 0 or block < 0:
                        break
                    _use(recency, block)


@inlined
def _clear(recency: Recency) -> None:
    recency.slot[:] = -1
    recency.words[:] = 0
    recency.stretches[:] = 0
    recency.now[0] = 0


@inlined
def _distance(recency: Recency, block: int) -> int:
    slot = recency.slot[block]
    word = slot >> WORD
    stretch = word >> STRETCH
    # shifted twice: a shift by all 64 bits of a word means nothing
    after = np.uint64(slot & 63)
    found: int = bits_of((recency.words[word] >> after) >> np.uint64(1))
    last = (recency.now[0] - 1) >> WORD
    stop = min(last + 1, (stretch + 1) << STRETCH)
    words = recency.words[word + 1 : stop]
    for place in range(words.size):
        found += bits_of(words[place])
    for between in range(stretch + 1, (last >> STRETCH) + 1):
        found += recency.stretches[between]
    return found


@inlined
def _use(recency: Recency, block: int) -> None:
    if recency.now[0] == recency.owner.size:
        _move_together(recency)
    old = recency.slot[block]
    if old >= 0:
        recency.words[old >> WORD] ^= np.uint64(1) << np.uint64(old & 63)
        recency.stretches[old >> (WORD + STRETCH)] -= 1
    now = recency.now[0]
    recency.now[0] = now + 1
    recency.slot[block] = now
    recency.owner[now] = block
    recency.words[now >> WORD] |= np.uint64(1) << np.uint64(now & 63)
    recency.stretches[now >> (WORD + STRETCH)] += 1


@inlined
def _move_together(recency: Recency) -> None:
    kept = 0
    for slot in range(recency.owner.size):
        block = recency.owner[slot]
        if recency.slot[block] == slot:
            recency.slot[block] = kept
            recency.owner[kept] = block
            kept += 1
    recency.words[:] = 0
    recency.stretches[:] = 0
    for slot in range(kept):
        recency.words[slot >> WORD] |= np.uint64(1) << np.uint64(slot & 63)
        recency.stretches[slot >> (WORD + STRETCH)] += 1
    recency.now[0] = kept
