"""MoE-Infinity's activation-aware priority: the block of the smallest product of three shares leaves.

    priority = (1 - ahead / layers) * (share of the layer's uses in this sequence + e) * (share of all uses + e)

`ahead` is how many layers have their turn before the block's, the layer that asks now the last; e is 1e-6. As in
MoE-Infinity's code, but for its layer term: that one is made for encoder and decoder, this one goes round the layers of
a decoder. The sequence's uses start at zero with each sequence, all uses at a cold start. In a pool for one layer the
first factor is 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stickymoe.cache.policies.ranking_kernel import SIZE, Ranking, clear_ranking, drop, new_ranking, rank
from stickymoe.cache.policies.rules_kernel import binds

SMALL = 1e-6


class MoEInfinity(NamedTuple):
    """Uses of every block: all (`uses`) and in this sequence (`recent`), with their sums; `layer`: whose turn it is."""

    ranking: Ranking
    uses: np.ndarray
    recent: np.ndarray
    recent_of_layer: np.ndarray
    total: np.ndarray
    layer: np.ndarray
    layers: int
    experts: int


def new(blocks: int, layers: int) -> MoEInfinity:
    """Return the state for blocks 0 to `blocks` - 1 of a pool for `layers` layers."""
    counts = np.zeros((2, blocks))
    turn = np.zeros(1, dtype=np.int64)
    ranking = new_ranking(blocks)
    return MoEInfinity(ranking, counts[0], counts[1], np.zeros(layers), np.zeros(1), turn, layers, blocks // layers)


def clear(state: MoEInfinity) -> None:
    """Forget every use."""
    clear_ranking(state.ranking)
    state.uses[:] = 0
    state.total[0] = 0
    state.recent[:] = 0
    state.recent_of_layer[:] = 0


def open_sequence(state: MoEInfinity) -> None:
    """Forget the uses of the sequence before."""
    state.recent[:] = 0
    state.recent_of_layer[:] = 0


def open_event(state: MoEInfinity, layer: int) -> None:
    """Note whose turn it is."""
    state.layer[0] = layer


def touch(state: MoEInfinity, block: int, weight: float) -> None:
    """Count a use."""
    state.uses[block] += 1
    state.total[0] += 1
    state.recent[block] += 1
    state.recent_of_layer[block // state.experts] += 1
    rank(state.ranking, block, 0)


def fetch(state: MoEInfinity, block: int) -> None:
    """Hold `block` with the uses it has."""
    rank(state.ranking, block, 0)


def victim(state: MoEInfinity, pinned: np.ndarray) -> int:
    """Choose the smallest priority; among equals, the oldest last use."""
    ranking = state.ranking
    best, best_priority = -1, 0.0
    for place in range(ranking.scalars[SIZE]):
        block = ranking.block[place]
        if pinned[block]:
            continue
        layer = block // state.experts
        ahead = (layer - state.layer[0] - 1) % state.layers
        in_layer = max(state.recent_of_layer[layer], 1.0)
        share = state.recent[block] / in_layer + SMALL
        priority = (1.0 - ahead / state.layers) * share * (state.uses[block] / state.total[0] + SMALL)
        if best < 0 or priority < best_priority:
            best, best_priority = place, priority
        elif priority == best_priority and ranking.last_use[place] < ranking.last_use[best]:
            best = place
    return -1 if best < 0 else ranking.block[best]


def forget(state: MoEInfinity, block: int) -> None:
    """Take `block` out; its uses stay counted."""
    drop(state.ranking, block)


binds(
    MoEInfinity,
    clear=clear,
    open_sequence=open_sequence,
    open_event=open_event,
    touch=touch,
    fetch=fetch,
    victim=victim,
    forget=forget,
)
