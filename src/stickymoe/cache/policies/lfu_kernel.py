"""LFU: the block of fewest uses leaves; uses count since the cold start and go on while a block is out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds


class LFU(NamedTuple):
    """Uses of every block, held or not."""

    ranking: Ranking
    uses: np.ndarray


def new(blocks: int, uses: int | None = None) -> LFU:
    """Return the state for blocks 0 to `blocks` - 1, for so many uses at most."""
    return LFU(new_ranking(blocks, uses), np.zeros(blocks, dtype=np.int64))


def clear(state: LFU) -> None:
    """Forget every use."""
    clear_ranking(state.ranking)
    state.uses[:] = 0


def touch(state: LFU, block: int, weight: float) -> None:
    """Count a use."""
    state.uses[block] += 1
    rank(state.ranking, block, state.uses[block])


def fetch(state: LFU, block: int) -> None:
    """Hold `block` with the uses it has."""
    rank(state.ranking, block, state.uses[block])


def victim(state: LFU, pinned: np.ndarray) -> int:
    """Choose the fewest uses; among equals, the oldest last use."""
    return lowest(state.ranking, pinned)


def forget(state: LFU, block: int) -> None:
    """Take `block` out; its uses stay counted."""
    drop(state.ranking, block)


binds(LFU, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
