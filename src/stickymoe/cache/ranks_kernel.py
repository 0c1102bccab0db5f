"""LRU at every capacity where each layer has a cache of its own: experts' ranks by last use, kept up to date.

An expert's rank is its reuse distance: so many others of its layer were used since. A use moves up by one those of
lower rank; a machine compares 32 or more of them at a time, and since layers take turns, none waits for the last use of
another. There is no branch on hit or miss to guess wrong.
"""

from __future__ import annotations

import numpy as np

from stickymoe.cache.replay_kernel import COLD, Requests
from stickymoe.core.compiled import borrowed, compiled, inlined

# Ranks are laid out so many at a time, so that the compiler knows how far to go.
WIDTH = 64
# With more experts a layer, a use takes longer than in `metrics.reuse_kernel`.
MOST_EXPERTS = 512


def new_ranks(layers: int, experts: int) -> np.ndarray:
    """Return the ranks (layers, experts and padding) of experts that were not used yet: `experts` each."""
    padded = -(-experts // WIDTH) * WIDTH
    return np.full((layers, padded), experts, dtype=np.uint8 if experts < 256 else np.uint16)


@compiled
def add_ranks(
    ranks: np.ndarray,
    requests: Requests,
    experts: int,
    sequential: bool,
    unique: bool,
    asked_by: np.ndarray,
    lookups: np.ndarray,
    loads: np.ndarray,
    largest: np.ndarray,
) -> None:
    """Add all lookups to a histogram (layer, phase, rank), and raise each layer's largest event to the largest seen.

    Rank `experts` is a first use. `loads` counts an expert of an event once; requests in turn are loads each, and
    `loads` and `largest` stay as they are. `asked_by` (layers, experts) is working room.
    """
    ranks, requests = borrowed(ranks), borrowed(requests)
    asked_by, lookups, loads = borrowed(asked_by), borrowed(lookups), borrowed(loads)
    ids, groups = requests.ids, requests.groups
    layers, slots = ids.shape[1], ids.shape[2]
    distinct = np.zeros(layers, dtype=np.int64)
    asked_by[:] = -1
    for group in range(groups.size - 1):
        if requests.heads[group] == COLD:
            ranks[:] = experts
        start, stop = max(groups[group], 0), groups[group + 1]
        if sequential:
            for row in range(start, stop):
                phase = requests.phases[row]
                for slot in range(slots):
                    for layer in range(layers):
                        expert = ids[row, layer, slot]
                        if expert >= 0:
                            lookups[layer, phase, ranks[layer, expert]] += 1
                            _use(ranks[layer], expert)
            continue
        distinct[:] = 0
        for row in range(start, stop):
            phase = requests.phases[row]
            for slot in range(slots):
                for layer in range(layers):
                    expert = ids[row, layer, slot]
                    if expert >= 0:
                        first = asked_by[layer, expert] != group
                        asked_by[layer, expert] = group
                        distinct[layer] += first
                        loads[layer, phase, ranks[layer, expert]] += first
                        lookups[layer, phase, ranks[layer, expert]] += first or not unique
        for row in range(start, stop):
            for slot in range(slots):
                for layer in range(layers):
                    if ids[row, layer, slot] >= 0:
                        _use(ranks[layer], ids[row, layer, slot])
        for layer in range(layers):
            largest[layer] = max(largest[layer], distinct[layer])


@inlined
def _use(ranks: np.ndarray, expert: int) -> None:
    rank = ranks[expert]
    for start in range(0, ranks.size, WIDTH):
        some = ranks[start : start + WIDTH]
        for place in range(WIDTH):
            some[place] += np.uint8(some[place] < rank)
    ranks[expert] = 0
