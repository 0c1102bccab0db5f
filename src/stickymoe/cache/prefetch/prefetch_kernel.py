"""Compiled: replay of one pool with experts fetched ahead of their use."""

from typing import Any

import numpy as np

from stickymoe.cache.policies.rules_kernel import open_event
from stickymoe.cache.replay_kernel import (
    BUDGET,
    COLD,
    HITS,
    MISSES,
    RESIDENTS,
    USED,
    Pool,
    Requests,
    begin,
    bring,
    serve,
)
from stickymoe.core.compiled import borrowed, compiled

# The first axis of the counts, after the HITS and MISSES of a replay.
FETCHED, USEFUL, KINDS = 2, 3, 4
# The columns of the steps: the layer of the model whose turn it is; the layer of the pool that asks and the one that is
# fetched for, -1 where either is in another pool; and how many tokens later those are needed.
TURN, ASKS, FETCHES_FOR, ROWS_AHEAD = 0, 1, 2, 3
NOT_AHEAD = -1


@compiled
def replay_ahead(
    state: Any,
    pool: Pool,
    requests: Requests,
    experts: int,
    steps: np.ndarray,
    sequence: np.ndarray,
    predictions: np.ndarray,
    budget: int,
    counts: np.ndarray,
    fetches: np.ndarray,
    used: np.ndarray,
) -> None:
    """Count (kind, layer) a token and step: look its experts up, use them and admit the missing; then fetch.

    What is fetched is what is predicted for the event some steps later and not resident, at most `budget` experts, none
    of them at the price of an expert of this event or of the same prediction. `fetches` (rows, layers of the model)
    gets how many, `used` (layer, row, slot) for each lookup of an expert fetched ahead the number of the fetch:
    event * width + place; it may be empty.
    """
    state, pool, requests = borrowed(state), borrowed(pool), borrowed(requests)
    ids, weights = requests.ids, requests.weights
    rows, slots, width = ids.shape[0], ids.shape[2], predictions.shape[2]
    room = max(slots, 1)
    event, waiting = np.empty(room, np.int64), np.empty(room, np.int64)
    gates, found = np.zeros(room, np.float64), np.empty(room, np.bool_)
    fetched_by = np.full(pool.resident.size, NOT_AHEAD, np.int64)
    for row in range(rows):
        begin(state, pool, requests.heads[row])
        if requests.heads[row] == COLD:
            fetched_by[:] = NOT_AHEAD
        for step in range(steps.shape[0]):
            layer, asked = steps[step, ASKS], 0
            if layer >= 0:
                open_event(state, layer)
                while asked < slots and ids[row, layer, asked] >= 0:
                    event[asked] = layer * experts + ids[row, layer, asked]
                    if weights.size > 0:
                        gates[asked] = weights[row, layer, asked]
                    asked += 1
                missing = serve(state, pool, event[:asked], gates, waiting, found)
                counts[MISSES, layer] += missing
                counts[HITS, layer] += asked - missing
                for number in range(asked):
                    block = event[number]
                    if found[number] and fetched_by[block] != NOT_AHEAD:
                        counts[USEFUL, layer] += 1
                        if used.size > 0:
                            used[layer, row, number] = fetched_by[block]
                    fetched_by[block] = NOT_AHEAD
            layer, target = steps[step, FETCHES_FOR], row + steps[step, ROWS_AHEAD]
            if layer < 0 or target >= rows or sequence[target] != sequence[row]:
                continue
            spare = pool.totals[RESIDENTS]
            for number in range(asked):
                pool.pinned[event[number]] = 1
                spare -= pool.resident[event[number]]
            for place in range(width):
                block = layer * experts + predictions[target, layer, place]
                if predictions[target, layer, place] >= 0 and not pool.pinned[block]:
                    pool.pinned[block] = 1
                    spare -= pool.resident[block]
            fetched = 0
            for place in range(width):
                if fetched == budget or predictions[target, layer, place] < 0:
                    break
                block = layer * experts + predictions[target, layer, place]
                if pool.resident[block]:
                    continue
                if pool.totals[USED] >= pool.totals[BUDGET]:
                    if spare == 0:
                        break
                    spare -= 1
                bring(state, pool, block)
                fetched_by[block] = (row * fetches.shape[1] + steps[step, TURN]) * width + fetched
                fetched += 1
            for number in range(asked):
                pool.pinned[event[number]] = 0
            for place in range(width):
                if predictions[target, layer, place] >= 0:
                    pool.pinned[layer * experts + predictions[target, layer, place]] = 0
            counts[FETCHED, layer] += fetched
            fetches[row, steps[step, TURN]] = fetched


@compiled
def late_uses(fetches: np.ndarray, used: np.ndarray, heads: np.ndarray, width: int, transfer: float) -> np.ndarray:
    """Count for each layer the lookups that came before their fetch had arrived.

    One link carries the fetches in turn, each for `transfer` events, from the event that makes it on; it is idle at a
    cold start.
    """
    rows, layers = fetches.shape
    begins = np.zeros(rows * layers, np.float64)
    late = np.zeros(layers, np.int64)
    link_free = 0.0
    for row in range(rows):
        if heads[row] == COLD:
            link_free = 0.0
        for layer in range(layers):
            event = row * layers + layer
            for number in range(fetches[row, layer]):
                if number == 0:
                    link_free = max(link_free, float(event))
                    begins[event] = link_free
                link_free += transfer
    for layer in range(layers):
        for row in range(rows):
            for slot in range(used.shape[2]):
                fetch = used[layer, row, slot]
                if fetch == NOT_AHEAD:
                    continue
                arrives = begins[fetch // width]
                for _ in range(fetch % width + 1):
                    arrives += transfer
                late[layer] += arrives > row * layers + layer
    return late
