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

from stickymoe.cache.replay_kernel import COLD, Requests
from stickymoe.core.compiled import borrowed, compiled, inlined

# Bits of a word and words of a stretch, as shifts.
WORD, STRETCH = 6, 6
# Places after the capacities in a histogram: farther than all of them, and not used since the cold start.
FARTHER, FIRST_USE = 0, 1


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
def add_distances(
    recency: Recency,
    requests: Requests,
    experts: int,
    sequential: bool,
    unique: bool,
    place_of: np.ndarray,
    lookups: np.ndarray,
    loads: np.ndarray,
) -> int:
    """Add the distances of all lookups to histograms (layer, phase, place), and return the largest event's size.

    `place_of[d]` is the place of distance d; the two last places are FARTHER and FIRST_USE. `loads` counts an expert of
    an event once; requests in turn are loads each, and `loads` stays as it is.
    """
    recency, requests = borrowed(recency), borrowed(requests)
    ids, groups = requests.ids, requests.groups
    layers, slots = ids.shape[1], ids.shape[2]
    first_use = lookups.shape[2] - 1
    room = 0
    for group in range(groups.size - 1):
        room = max(room, groups[group + 1] - groups[group])
    event = np.empty(room * slots, dtype=np.int64)
    asked_by = np.full(recency.slot.size, -1, dtype=np.int64)
    largest = 0
    for group in range(groups.size - 1):
        if requests.heads[group] == COLD:
            _clear(recency)
        for layer in range(layers):
            asked, distinct = 0, 0
            for row in range(groups[group], groups[group + 1]):
                phase = requests.phases[row]
                for slot in range(slots):
                    expert = ids[row, layer, slot]
                    block = layer * experts + expert
                    if expert < 0 or block < 0:
                        break
                    place = first_use
                    if recency.slot[block] >= 0:
                        place = place_of[_distance(recency, block)]
                    if sequential:
                        lookups[layer, phase, place] += 1
                        _use(recency, block)
                        continue
                    first = asked_by[block] != group
                    if first:
                        asked_by[block] = group
                        distinct += 1
                        loads[layer, phase, place] += 1
                    if first or not unique:
                        lookups[layer, phase, place] += 1
                    event[asked] = block
                    asked += 1
            for number in range(asked):
                _use(recency, event[number])
            largest = max(largest, distinct)
    return largest


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
