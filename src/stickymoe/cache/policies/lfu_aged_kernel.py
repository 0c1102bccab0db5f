"""LFU with ageing: the block of the smallest decayed count leaves. Each use adds 1; what is there halves with time.

    count(t) = sum over uses u of  2 ** -((t - t_u) / half_life)

All counts fade alike, so that their order is that of log2(count) + t / half_life, which a use alone changes.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank, whole
from stickymoe.cache.policies.rules_kernel import binds


class AgedLFU(NamedTuple):
    """`faded`: log2(count) + t / half_life of every block, held or not; `clock`: uses of the pool so far."""

    ranking: Ranking
    faded: np.ndarray
    clock: np.ndarray
    half_life: float


def new(blocks: int, half_life: float) -> AgedLFU:
    """Return the state for blocks 0 to `blocks` - 1; `half_life` in uses of the pool."""
    return AgedLFU(new_ranking(blocks), np.full(blocks, -np.inf), np.zeros(1, dtype=np.int64), float(half_life))


def clear(state: AgedLFU) -> None:
    """Forget every use."""
    clear_ranking(state.ranking)
    state.faded[:] = -np.inf
    state.clock[0] = 0


def touch(state: AgedLFU, block: int, weight: float) -> None:
    """Add 1 to the decayed count."""
    state.clock[0] += 1
    now = state.clock[0] / state.half_life
    state.faded[block] = now + log2(1.0 + 2.0 ** (state.faded[block] - now))
    rank(state.ranking, block, whole(state.faded[block]))


def fetch(state: AgedLFU, block: int) -> None:
    """Hold `block` with the count it has."""
    rank(state.ranking, block, whole(state.faded[block]))


def victim(state: AgedLFU, pinned: np.ndarray) -> int:
    """Choose the smallest decayed count; among equals, the oldest last use."""
    return lowest(state.ranking, pinned)


def forget(state: AgedLFU, block: int) -> None:
    """Take `block` out; its count goes on fading."""
    drop(state.ranking, block)


binds(AgedLFU, clear=clear, touch=touch, fetch=fetch, victim=victim, forget=forget)
