"""Blocks by priority: the lowest leaves; among equals, the one whose last use is oldest.

For the policies whose order of blocks changes only where a block is touched. Uses are many and victims few, so a use
takes constant time and the search is left to the victim: blocks stand in groups of 64, and each group remembers who is
its lowest until that one is touched or leaves.

What is compared stands side by side, so that a machine compares many places at a time: a group's lowest priority, then
among its equals the oldest use, whose number tells its place as well.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stickymoe.core.compiled import inlined

SIZE, CLOCK = 0, 1
SHIFT = 6
MASK = (1 << SHIFT) - 1
UNKNOWN = -1
# Uses that a pool of 32-bit numbers may see; half as many compare at a time where they are wider.
MOST_USES = 2**25


class Ranking(NamedTuple):
    """The held blocks at the places 0 to size - 1, in no order.

    `priority`, `last_use` and `block` go by place, `place` by block (-1: not held), `lowest` by group. `last_use` is
    the clock at the last use times 64, plus the place in its group. Nothing is above `late`.
    """

    priority: np.ndarray
    last_use: np.ndarray
    block: np.ndarray
    place: np.ndarray
    lowest: np.ndarray
    scalars: np.ndarray
    late: np.ndarray


def new_ranking(blocks: int, uses: int | None = None) -> Ranking:
    """Return an empty ranking; `uses`: no more are to come, and no priority will be greater."""
    whole: type = np.int32 if uses is not None and uses < MOST_USES else np.int64
    return Ranking(
        priority=np.zeros(blocks, dtype=whole),
        last_use=np.zeros(blocks, dtype=whole),
        block=np.zeros(blocks, dtype=np.int64),
        place=np.full(blocks, -1, dtype=np.int64),
        lowest=np.full((blocks >> SHIFT) + 1, UNKNOWN, dtype=np.int64),
        scalars=np.zeros(2, dtype=np.int64),
        late=np.full(1, np.iinfo(whole).max, dtype=whole),
    )


@inlined
def whole(number: float) -> int:
    """Return an integer for each float, in the order of the floats; NaN means nothing here."""
    bits: Any = np.float64(number).view(np.int64)
    return bits if bits >= 0 else bits ^ np.int64(0x7FFFFFFFFFFFFFFF)  # type: ignore[no-any-return]


@inlined
def clear_ranking(ranking: Ranking) -> None:
    """Empty the ranking; its clock goes on."""
    ranking.place[:] = -1
    ranking.lowest[:] = UNKNOWN
    ranking.scalars[SIZE] = 0


@inlined
def rank(ranking: Ranking, block: int, priority: int) -> None:
    """Give `block` a priority and the latest use; it joins if it is not there."""
    place = ranking.place[block]
    ranking.scalars[CLOCK] += 1
    joins = place < 0
    if joins:
        place = ranking.scalars[SIZE]
        ranking.scalars[SIZE] = place + 1
        ranking.place[block] = place
        ranking.block[place] = block
    group = place >> SHIFT
    lowest = ranking.lowest[group]
    if lowest == place:
        if priority >= ranking.priority[place]:
            ranking.lowest[group] = UNKNOWN
    elif lowest != UNKNOWN:
        # its use is the latest, so that only a lower priority makes it the lowest
        if priority < ranking.priority[lowest]:
            ranking.lowest[group] = place
    elif joins and place == group << SHIFT:
        ranking.lowest[group] = place
    ranking.priority[place] = priority
    ranking.last_use[place] = ranking.scalars[CLOCK] << SHIFT | (place & MASK)


@inlined
def lowest(ranking: Ranking, pinned: np.ndarray) -> int:
    """Return the block of lowest priority that is not pinned, or -1."""
    size = ranking.scalars[SIZE]
    best = -1
    for group in range((size + (1 << SHIFT) - 1) >> SHIFT):
        start, stop = group << SHIFT, min((group + 1) << SHIFT, size)
        first = ranking.lowest[group]
        if first == UNKNOWN:
            first = _first(ranking, start, stop)
            ranking.lowest[group] = first
        if best >= 0 and not _before(ranking, first, best):
            continue
        if not pinned[ranking.block[first]]:
            best = first
            continue
        for place in range(start, stop):
            if (best < 0 or _before(ranking, place, best)) and not pinned[ranking.block[place]]:
                best = place
    return -1 if best < 0 else ranking.block[best]


@inlined
def drop(ranking: Ranking, block: int) -> None:
    """Take `block` out of the ranking; the last one moves to its place."""
    place, last = ranking.place[block], ranking.scalars[SIZE] - 1
    ranking.scalars[SIZE] = last
    ranking.place[block] = -1
    for gone in (place, last):
        if ranking.lowest[gone >> SHIFT] == gone:
            ranking.lowest[gone >> SHIFT] = UNKNOWN
    if place == last:
        return
    moved = ranking.block[last]
    ranking.block[place] = moved
    ranking.place[moved] = place
    ranking.priority[place] = ranking.priority[last]
    ranking.last_use[place] = ranking.last_use[last] >> SHIFT << SHIFT | (place & MASK)
    first = ranking.lowest[place >> SHIFT]
    if first != UNKNOWN and _before(ranking, place, first):
        ranking.lowest[place >> SHIFT] = place


@inlined
def _first(ranking: Ranking, start: int, stop: int) -> int:
    priorities, uses = ranking.priority[start:stop], ranking.last_use[start:stop]
    late = ranking.late[0]
    priority = late
    for place in range(priorities.size):
        priority = min(priority, priorities[place])
    oldest = late
    for place in range(priorities.size):
        oldest = min(oldest, uses[place] if priorities[place] == priority else late)
    return start + int(oldest & MASK)


@inlined
def _before(ranking: Ranking, left: int, right: int) -> bool:
    first, second = ranking.priority[left], ranking.priority[right]
    return bool(first < second or (first == second and ranking.last_use[left] < ranking.last_use[right]))
