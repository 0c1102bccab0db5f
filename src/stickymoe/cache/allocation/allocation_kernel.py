"""Compiled: the best split of a budget over layers by dynamic programming."""

import numpy as np

from stickymoe.core.compiled import compiled


@compiled
def split(costs: np.ndarray, units: np.ndarray, least: int, budget: int) -> np.ndarray:
    """Return slots a layer that make the sum of `costs[layer, slots]` smallest within `budget`.

    After each layer `best[u]` is the least cost of the layers so far within u units. Fewer slots among equals.
    """
    layers, choices = costs.shape
    best = np.zeros(budget + 1, np.float64)
    following = np.empty(budget + 1, np.float64)
    taken = np.zeros((layers, budget + 1), np.int32)
    for layer in range(layers):
        following[:] = np.inf
        cheapest = np.inf
        for slots in range(least, choices):
            need = slots * units[layer]
            if need > budget:
                break
            cost = costs[layer, slots]
            if cost >= cheapest:  # as good with fewer slots
                continue
            cheapest = cost
            for u in range(need, budget + 1):
                total = best[u - need] + cost
                if total < following[u]:
                    following[u] = total
                    taken[layer, u] = slots
        best[:] = following
    found = np.zeros(layers, np.int64)
    left = budget
    for back in range(layers):
        layer = layers - 1 - back
        found[layer] = taken[layer, left]
        left -= found[layer] * units[layer]
    return found
