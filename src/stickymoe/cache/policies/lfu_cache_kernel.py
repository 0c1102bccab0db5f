"""LFU of the cached: the block of fewest uses since its admission leaves, as in libCacheSim."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds


class CachedLFU(NamedTuple):
    """Held blocks by their uses, which are their priorities."""

    ranking: Ranking


def new(blocks: int, uses: int | None = None) -> CachedLFU:
    """Return the state for blocks 0 to `blocks` - 1, for so many uses at most."""
    return CachedLFU(new_ranking(blocks, uses))


def clear(state: CachedLFU) -> None:
    """Forget every use."""
    clear_ranking(state.ranking)


def touch(state: CachedLFU, block: int, weight: float) -> None:
    """Count a use; a new block starts at one."""
    place = state.ranking.place[block]
    rank(state.ranking, block, 1 if place < 0 else state.ranking.priority[place] + 1)


def fetch(state: CachedLFU, block: int) -> None:
    """Hold `block` without a use."""
    rank(state.ranking, block, 0)


def victim(state: CachedLFU, pinned: np.ndarray) -> int:
    """Choose the fewest uses; among equals, the oldest last use."""
    return lowest(state.ranking, pinned)


def forget(state: CachedLFU, block: int) -> None:
    """Take `block` out, and its uses with it."""
    drop(state.ranking, block)


binds(CachedLFU, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
