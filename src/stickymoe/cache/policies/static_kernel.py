"""Static: the blocks most used on a profile stay for good; what is not among them is loaded and dropped each time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds


class Static(NamedTuple):
    """`chosen`: who stays (1) and who does not (0)."""

    ranking: Ranking
    chosen: np.ndarray


def new(chosen: np.ndarray) -> Static:
    """Return the state for a block a flag."""
    return Static(new_ranking(chosen.size), chosen.astype(np.int64))


def clear(state: Static) -> None:
    """Forget who is there."""
    clear_ranking(state.ranking)


def touch(state: Static, block: int, weight: float) -> None:
    """Rank by whether the block is a chosen one."""
    rank(state.ranking, block, state.chosen[block])


def victim(state: Static, pinned: np.ndarray) -> int:
    """Choose who is not a chosen one, the oldest last use first."""
    return lowest(state.ranking, pinned)


def forget(state: Static, block: int) -> None:
    """Take `block` out."""
    drop(state.ranking, block)


binds(Static, clear=clear, touch=touch, victim=victim, forget=forget)
