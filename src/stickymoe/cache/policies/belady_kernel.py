"""Belady: the block whose next use is farthest leaves. It knows the future, so it is a bound and no policy to run.

With every miss admitted it is the best that an engine can do that must keep what it ran last; where a miss may also
leave at once (`belady-bypass`) it is the best of all. Both for blocks of one size: with several sizes no quick rule is
optimal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stickymoe.cache.policies.rules_kernel import binds
from stickymoe.core.compiled import compiled, inlined

# Held blocks stand in groups of 64, and each group remembers who is its farthest until that one leaves.
SHIFT = 6
UNKNOWN = -1


class Belady(NamedTuple):
    """For each use to come, how far the same block's next use is; `cursor` is the use that comes now.

    The held blocks are at the places 0 to `size` - 1, in no order. `distance` and `block` go by place, `place` by block
    (-1: not held), `farthest` by group.
    """

    next_use: np.ndarray
    cursor: np.ndarray
    distance: np.ndarray
    block: np.ndarray
    place: np.ndarray
    farthest: np.ndarray
    size: np.ndarray


def new(blocks: int, next_use: np.ndarray) -> Belady:
    """Return the state for blocks 0 to `blocks` - 1 and the future that `next_uses` found."""
    return Belady(
        next_use=next_use,
        cursor=np.zeros(1, dtype=np.int64),
        distance=np.zeros(blocks, dtype=next_use.dtype),
        block=np.zeros(blocks, dtype=np.int64),
        place=np.full(blocks, -1, dtype=np.int64),
        farthest=np.full((blocks >> SHIFT) + 1, UNKNOWN, dtype=np.int64),
        size=np.zeros(1, dtype=np.int64),
    )


def clear(state: Belady) -> None:
    """Start cold; the future stays known."""
    state.place[:] = -1
    state.farthest[:] = UNKNOWN
    state.size[0] = 0


def touch(state: Belady, block: int, weight: float) -> None:
    """Note the next use."""
    distance = state.next_use[state.cursor[0]]
    state.cursor[0] += 1
    place = state.place[block]
    if place < 0:
        place = state.size[0]
        state.size[0] = place + 1
        state.place[block] = place
        state.block[place] = block
    state.distance[place] = distance
    farthest = state.farthest[place >> SHIFT]
    if farthest != UNKNOWN and distance > state.distance[farthest]:
        state.farthest[place >> SHIFT] = place


def victim(state: Belady, pinned: np.ndarray) -> int:
    """Choose the farthest next use; among equals, the oldest last use."""
    size, best = state.size[0], -1
    for group in range((size + (1 << SHIFT) - 1) >> SHIFT):
        start, stop = group << SHIFT, min((group + 1) << SHIFT, size)
        first = state.farthest[group]
        if first == UNKNOWN:
            first = start + farthest_of(state.distance[start:stop])
            state.farthest[group] = first
        if best >= 0 and state.distance[first] < state.distance[best]:
            continue
        if pinned[state.block[first]]:
            # most often the one block that just came; without it the search is as quick again
            distance = state.distance[first]
            state.distance[first] = -1
            second = start + farthest_of(state.distance[start:stop])
            state.distance[first] = distance
            if stop - start > 1 and not pinned[state.block[second]]:
                first = second
        if not pinned[state.block[first]]:
            if best < 0 or state.distance[first] > state.distance[best]:
                best = first
            continue
        for place in range(start, stop):
            if (best < 0 or state.distance[place] > state.distance[best]) and not pinned[state.block[place]]:
                best = place
    return -1 if best < 0 else state.block[best]


def forget(state: Belady, block: int) -> None:
    """Take `block` out; the last one moves to its place."""
    place, last = state.place[block], state.size[0] - 1
    state.size[0] = last
    state.place[block] = -1
    state.farthest[place >> SHIFT] = UNKNOWN
    state.farthest[last >> SHIFT] = UNKNOWN
    if place != last:
        moved = state.block[last]
        state.block[place] = moved
        state.place[moved] = place
        state.distance[place] = state.distance[last]


@inlined
def farthest_of(distances: np.ndarray) -> int:
    """Return the number of the greatest; all differ."""
    greatest: Any = np.int32(-1)
    for number in range(distances.size):
        greatest = max(greatest, distances[number])
    found: Any = np.int32(distances.size)
    for number in range(distances.size):
        found = min(found, np.int32(number) if distances[number] == greatest else np.int32(1 << SHIFT))
    return found  # type: ignore[no-any-return]


@compiled
def next_uses(
    ids: np.ndarray,
    experts: int,
    groups: np.ndarray,
    cold: np.ndarray,
    sequential: bool,
    unique: bool,
    last: np.ndarray,
    found: np.ndarray,
) -> np.ndarray:
    """Return for every use, in replay order, how far its block's next use is: no two alike, the later the more.

    Of blocks used next in one event, or never, the one whose use is earlier is farther. Uses after a cold start are not
    seen from before it. `last` is working room, one value a block; the answer stands in `found`, one value an id, below
    twice their number.
    """
    layers, slots = ids.shape[1], ids.shape[2]
    at, events = found.size, (groups.size - 1) * layers
    never = max(at, events)
    # one past the last use of each event
    ends = np.empty(1 if sequential else events, dtype=found.dtype)
    last[:] = never
    for group in range(groups.size - 2, -1, -1):
        for layer in range(layers - 1, -1, -1):
            event = group * layers + layer
            if not sequential:
                ends[event] = at
            for row in range(groups[group + 1] - 1, groups[group] - 1, -1):
                for slot in range(slots - 1, -1, -1):
                    expert = ids[row, layer, slot]
                    block = layer * experts + expert
                    if expert < 0 or block < 0:
                        continue
                    if sequential:
                        event = at - 1
                    elif unique and last[block] == event:
                        continue
                    at -= 1
                    found[at] = last[block]
                    last[block] = event
        if cold[group]:
            last[:] = never
    found = found[at:]
    for use in range(found.size):
        event = found[use]
        if event == never:
            found[use] = 2 * never - use
        elif not sequential:
            ends[event] -= 1
            found[use] = ends[event]
    return found


binds(Belady, clear=clear, touch=touch, victim=victim, forget=forget)
