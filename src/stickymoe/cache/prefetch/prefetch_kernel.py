"""Compiled: replay with experts fetched ahead of their use."""

import numpy as np

from stickymoe.cache.scan_kernel import admit, start_cold
from stickymoe.core.compiled import compiled

HITS, LATE, MISSES, FETCHED, USEFUL = range(5)


@compiled
def replay_ahead(
    ids: np.ndarray,
    sequence: np.ndarray,
    predictions: np.ndarray,
    experts: int,
    capacities: np.ndarray,
    pooled: bool,
    policy: int,
    cold: bool,
    lookahead: int,
    budget: int,
    transfer: float,
) -> np.ndarray:
    """Count per layer; (layers, columns).

    Event (token, layer): look its experts up, note their use, admit the missing; then fetch for the event `lookahead`
    later what is predicted and not resident, at most `budget` experts, none of them at the price of an expert of this
    event or of the same prediction. One link carries the fetches in turn, each for `transfer` events.
    """
    tokens, layers, top_k = ids.shape
    width = predictions.shape[2]
    counts = np.zeros((layers, 5), np.int64)
    blocks = layers * experts
    held = np.zeros((capacities.size, max(1, min(capacities.max(), blocks))), np.int64)
    used = np.zeros(capacities.size, np.int64)
    resident = np.zeros(blocks, np.bool_)
    last_use = np.zeros(blocks, np.int64)
    admitted = np.zeros(blocks, np.int64)
    uses = np.zeros(blocks, np.int64)
    spared = np.full(blocks, -2, np.int64)
    ahead = np.zeros(blocks, np.bool_)
    arrival = np.zeros(blocks, np.float64)
    missing = np.zeros(top_k, np.bool_)
    clock = 0
    link_free = 0.0
    for t in range(tokens):
        if cold and t > 0 and sequence[t] != sequence[t - 1]:
            start_cold(used, resident, uses)
            ahead[:] = False
            link_free = 0.0
        for layer in range(layers):
            event = t * layers + layer
            cache = 0 if pooled else layer
            base = layer * experts
            # 1. look up, against the state before anything moves
            for slot in range(top_k):
                if ids[t, layer, slot] < 0:
                    break
                block = base + ids[t, layer, slot]
                missing[slot] = not resident[block]
                if missing[slot]:
                    counts[layer, MISSES] += 1
                elif ahead[block] and arrival[block] > event:
                    counts[layer, LATE] += 1
                else:
                    counts[layer, HITS] += 1
                if resident[block] and ahead[block]:
                    counts[layer, USEFUL] += 1
                ahead[block] = False
                clock += 1
                last_use[block] = clock
                uses[block] += 1
                spared[block] = 2 * event
            # 2. admit what was missing (and not what leaves while it does)
            for slot in range(top_k):
                if ids[t, layer, slot] < 0:
                    break
                block = base + ids[t, layer, slot]
                if missing[slot] and capacities[cache] > 0:
                    clock += 1
                    admit(
                        block, held[cache], used, cache, capacities[cache], policy,
                        resident, last_use, admitted, uses, spared, 2 * event, clock, True,
                    )  # fmt: skip
            # 3. fetch ahead
            target = event + lookahead
            row = target // layers
            if budget == 0 or row >= tokens or sequence[row] != sequence[t]:
                continue
            wanted = target - row * layers
            base = wanted * experts
            cache = 0 if pooled else wanted
            for place in range(width):
                if predictions[row, wanted, place] >= 0:
                    spared[base + predictions[row, wanted, place]] = 2 * event + 1
            if cache == (0 if pooled else layer):
                for slot in range(top_k):
                    if ids[t, layer, slot] < 0:
                        break
                    spared[layer * experts + ids[t, layer, slot]] = 2 * event + 1
            fetched = 0
            for place in range(width):
                if fetched == budget or predictions[row, wanted, place] < 0:
                    break
                block = base + predictions[row, wanted, place]
                if resident[block] or capacities[cache] == 0:
                    continue
                clock += 1
                if not admit(
                    block, held[cache], used, cache, capacities[cache], policy,
                    resident, last_use, admitted, uses, spared, 2 * event + 1, clock, False,
                ):  # fmt: skip
                    break
                last_use[block] = clock
                fetched += 1
                ahead[block] = True
                link_free = max(link_free, float(event)) + transfer
                arrival[block] = link_free
                counts[wanted, FETCHED] += 1
    return counts
