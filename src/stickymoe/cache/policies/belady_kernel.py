"""Belady: the block whose next use is farthest leaves. It knows the future, so it is a bound and no policy to run.

With every miss admitted it is the best that an engine can do that must keep what it ran last; where a miss may also
leave at once (`belady-bypass`) it is the best of all. Both for blocks of one size: with several sizes no quick rule is
optimal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds
from stickymoe.core.compiled import compiled

NEVER = 2**62


class Belady(NamedTuple):
    """For each use to come, the event of the same block's next use; `cursor` is the use that comes now."""

    ranking: Ranking
    next_use: np.ndarray
    cursor: np.ndarray


def new(blocks: int, next_use: np.ndarray) -> Belady:
    """Return the state for blocks 0 to `blocks` - 1 and the future that `next_uses` found."""
    return Belady(new_ranking(blocks), next_use, np.zeros(1, dtype=np.int64))


def clear(state: Belady) -> None:
    """Start cold; the future stays known."""
    clear_ranking(state.ranking)


def touch(state: Belady, block: int, weight: float) -> None:
    """Rank by the next use."""
    rank(state.ranking, block, -state.next_use[state.cursor[0]])
    state.cursor[0] += 1


def victim(state: Belady, pinned: np.ndarray) -> int:
    """Choose the farthest next use; among equals, the oldest last use."""
    return lowest(state.ranking, pinned)


def forget(state: Belady, block: int) -> None:
    """Take `block` out."""
    drop(state.ranking, block)


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
    """Return for every use, in replay order, the number of the event in which its block is used next.

    Uses after a cold start are not seen from before it. `last` is working room, one value a block;
    the answer stands in `found`, one value an id.
    """
    layers, slots = ids.shape[1], ids.shape[2]
    last[:] = NEVER
    at = found.size
    for group in range(groups.size - 2, -1, -1):
        for layer in range(layers - 1, -1, -1):
            event = group * layers + layer
            for row in range(groups[group + 1] - 1, groups[group] - 1, -1):
                for slot in range(slots - 1, -1, -1):
                    expert = ids[row, layer, slot]
                    block = layer * experts + expert
                    if expert < 0 or block < 0:
                        continue
                    if sequential:
                        event = at
                    elif unique and last[block] == event:
                        continue
                    at -= 1
                    found[at] = last[block]
                    last[block] = event
        if cold[group]:
            last[:] = NEVER
    return found[at:]


binds(Belady, clear=clear, touch=touch, victim=victim, forget=forget)
