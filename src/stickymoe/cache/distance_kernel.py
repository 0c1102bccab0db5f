"""Reuse distances to counts in machine code: how many lookups and loads each capacity would hit."""

from __future__ import annotations

import numpy as np

from stickymoe.cache.replay_kernel import Requests
from stickymoe.core.compiled import borrowed, compiled


@compiled
def add_distances(
    requests: Requests,
    distances: np.ndarray,
    asked_by: np.ndarray,
    experts: int,
    sequential: bool,
    unique: bool,
    place_of: np.ndarray,
    lookups: np.ndarray,
    loads: np.ndarray,
) -> int:
    """Add the distances of all lookups to histograms (layer, phase, place), and return the largest event's size.

    `place_of[d]` is the place of distance d; behind the places of all capacities comes one for what is farther, and one
    for first uses, whose distance is negative. `loads` counts an expert of an event once; requests in turn are loads
    each, and `loads` stays as it is. `asked_by` is working room, one value a block.
    """
    requests, distances = borrowed(requests), borrowed(distances)
    ids, groups = requests.ids, requests.groups
    layers, slots = ids.shape[1], ids.shape[2]
    first_use = lookups.shape[2] - 1
    asked_by[:] = -1
    largest = 0
    for group in range(groups.size - 1):
        for layer in range(layers):
            distinct = 0
            for row in range(max(groups[group], 0), groups[group + 1]):
                phase = requests.phases[row]
                for slot in range(slots):
                    block = layer * experts + ids[row, layer, slot]
                    if ids[row, layer, slot] < 0 or block < 0:
                        break
                    distance = distances[row, layer, slot]
                    place = first_use if distance < 0 else place_of[distance]
                    if sequential:
                        lookups[layer, phase, place] += 1
                        continue
                    first = asked_by[block] != group
                    if first:
                        asked_by[block] = group
                        distinct += 1
                        loads[layer, phase, place] += 1
                    if first or not unique:
                        lookups[layer, phase, place] += 1
            largest = max(largest, distinct)
    return largest
