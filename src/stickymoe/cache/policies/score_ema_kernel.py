"""Score-EMA: the block of the smallest running mean of gate weights leaves, as in HybriMoE.

At each step of a layer  S_e <- decay * (weight of e if served, else 0) + (1 - decay) * S_e.

HybriMoE averages the 2k largest gate scores; a trace holds the k that served, so this uses those. All scores fade alike
between uses, so that their order is that of log2(S) - steps * log2(1 - decay), which a use alone changes. In a pool for
the whole model a step is a token: each layer's turn is a fraction of one.
"""

from __future__ import annotations

from math import log2
from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import Ranking, clear_ranking, drop, lowest, new_ranking, rank, whole
from stickymoe.cache.policies.rules_kernel import binds


class ScoreEMA(NamedTuple):
    """`faded`: log2(S) - steps * log2(1 - decay) of every block, held or not; `events` of the pool so far."""

    ranking: Ranking
    faded: np.ndarray
    events: np.ndarray
    layers: int
    decay: float


def new(blocks: int, layers: int, decay: float) -> ScoreEMA:
    """Return the state for blocks 0 to `blocks` - 1 of a pool for `layers` layers; 0 < `decay` < 1."""
    return ScoreEMA(new_ranking(blocks), np.full(blocks, -np.inf), np.zeros(1, np.int64), layers, float(decay))


def clear(state: ScoreEMA) -> None:
    """Forget every score."""
    clear_ranking(state.ranking)
    state.faded[:] = -np.inf
    state.events[0] = 0


def open_event(state: ScoreEMA, layer: int) -> None:
    """Let time pass."""
    state.events[0] += 1


def touch(state: ScoreEMA, block: int, weight: float) -> None:
    """Take the weight into the mean."""
    now = -log2(1.0 - state.decay) * (state.events[0] // state.layers)
    score = 2.0 ** (state.faded[block] - now) + state.decay * weight
    state.faded[block] = now + log2(score) if score > 0.0 else -np.inf
    rank(state.ranking, block, whole(state.faded[block]))


def fetch(state: ScoreEMA, block: int) -> None:
    """Hold `block` with the mean it has."""
    rank(state.ranking, block, whole(state.faded[block]))


def victim(state: ScoreEMA, pinned: np.ndarray) -> int:
    """Choose the smallest mean; among equals, the oldest last use."""
    return lowest(state.ranking, pinned)


def forget(state: ScoreEMA, block: int) -> None:
    """Take `block` out; its mean goes on fading."""
    drop(state.ranking, block)


binds(ScoreEMA, clear=clear, open_event=open_event, touch=touch, fetch=fetch, victim=victim, forget=forget)
