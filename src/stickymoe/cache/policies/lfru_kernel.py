"""LFRU: the block of the smallest uses / age leaves; age is counted in uses of the pool since its last use.

Ages grow at different rates, so no order lasts: every victim is found by a search through all held blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import CLOCK, SHIFT, SIZE, Ranking, clear_ranking, drop, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds


class LFRU(NamedTuple):
    """Uses of every block since the cold start; the ranking holds who is there and their last uses."""

    ranking: Ranking
    uses: np.ndarray


def new(blocks: int) -> LFRU:
    """Return the state for blocks 0 to `blocks` - 1."""
    return LFRU(new_ranking(blocks), np.zeros(blocks, dtype=np.int64))


def clear(state: LFRU) -> None:
    """Forget every use."""
    clear_ranking(state.ranking)
    state.uses[:] = 0


def touch(state: LFRU, block: int, weight: float) -> None:
    """Count a use."""
    state.uses[block] += 1
    rank(state.ranking, block, state.uses[block])


def fetch(state: LFRU, block: int) -> None:
    """Hold `block` with the uses it has; its age counts from now."""
    rank(state.ranking, block, state.uses[block])


def victim(state: LFRU, pinned: np.ndarray) -> int:
    """Choose the smallest uses / age; among equals, the oldest last use."""
    ranking = state.ranking
    now = ranking.scalars[CLOCK]
    best, best_uses, best_age = -1, 0, 1
    for place in range(ranking.scalars[SIZE]):
        if pinned[ranking.block[place]]:
            continue
        uses, age = ranking.priority[place], now - (ranking.last_use[place] >> SHIFT)
        left, right = uses * best_age, best_uses * age
        if best < 0 or left < right or (left == right and age > best_age):
            best, best_uses, best_age = place, uses, age
    return -1 if best < 0 else ranking.block[best]


def forget(state: LFRU, block: int) -> None:
    """Take `block` out; its uses stay counted."""
    drop(state.ranking, block)


binds(LFRU, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
