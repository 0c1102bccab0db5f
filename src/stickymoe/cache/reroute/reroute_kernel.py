"""Compiled: replay in which the cache has a say in which experts serve a token."""

import numpy as np

from stickymoe.cache.scan_kernel import admit, start_cold
from stickymoe.core.compiled import compiled

NONE, MAX_RANK, CUMULATIVE, CACHE_PRIOR, DROP_MISSING, DROP_ALL = range(6)
HITS, MISSES, CHANGED, DROPPED = range(4)


@compiled
def choose(
    rule: int,
    strength: float,
    keep: int,
    served: int,
    order: np.ndarray,
    weights: np.ndarray,
    cached: np.ndarray,
    spread: float,
    chosen: np.ndarray,
) -> None:
    """Mark in `chosen` the slots that serve the token.

    `order` lists the filled slots by weight, heaviest first; the first `served` of them are the router's own choice.
    """
    chosen[:] = False
    ranks = order.size
    kept = min(keep, served)
    for rank in range(min(served, ranks) if rule == NONE else kept):
        chosen[order[rank]] = True
    if rule == NONE:
        return
    if rule in (DROP_MISSING, DROP_ALL):
        least = strength * weights[order[0]]
        for rank in range(kept, served):
            slot = order[rank]
            chosen[slot] = weights[slot] >= least or (rule == DROP_MISSING and cached[slot])
        return
    left = served - kept
    if rule == CACHE_PRIOR:
        # The bonus needs a logit; equal weights give equal ones, and those kept have it already.
        while left > 0:
            best = -1
            top = 0.0
            for rank in range(kept, ranks):
                slot = order[rank]
                if chosen[slot]:
                    continue
                score = np.log(max(weights[slot], 1e-38)) + (strength * spread if cached[slot] else 0.0)
                if best < 0 or score > top:
                    best, top = slot, score
            chosen[best] = True
            left -= 1
        return
    reach = ranks
    if rule == MAX_RANK:
        reach = min(ranks, int(strength))
    else:
        mass = 0.0
        for rank in range(ranks):
            mass += weights[order[rank]]
            if mass >= strength:
                reach = rank + 1
                break
    for wanted in (True, False):
        for rank in range(kept, max(reach, served)):
            slot = order[rank]
            if left > 0 and not chosen[slot] and (not wanted or (cached[slot] and rank < reach)):
                chosen[slot] = True
                left -= 1


@compiled
def replay_rerouted(
    ids: np.ndarray,
    weights: np.ndarray,
    order: np.ndarray,
    sequence: np.ndarray,
    experts: int,
    capacities: np.ndarray,
    pooled: bool,
    policy: int,
    cold: bool,
    rule: int,
    strength: float,
    keep: int,
    served: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Count per layer, (layers, columns), and sum the gate mass of the router's choice and of what served, (layers, 2).

    Event (token, layer): choose against the state at its start, look the chosen up, note their use, admit the missing
    in the trace's slot order.
    """
    tokens, layers, slots = ids.shape
    counts = np.zeros((layers, 4), np.int64)
    mass = np.zeros((layers, 2), np.float64)
    blocks = layers * experts
    held = np.zeros((capacities.size, max(1, min(capacities.max(), blocks))), np.int64)
    used = np.zeros(capacities.size, np.int64)
    resident = np.zeros(blocks, np.bool_)
    last_use = np.zeros(blocks, np.int64)
    admitted = np.zeros(blocks, np.int64)
    uses = np.zeros(blocks, np.int64)
    spared = np.full(blocks, -2, np.int64)
    chosen = np.zeros(slots, np.bool_)
    cached = np.zeros(slots, np.bool_)
    spread = np.zeros(layers, np.float64)
    seen = np.zeros(layers, np.int64)
    clock = 0
    for t in range(tokens):
        if cold and t > 0 and sequence[t] != sequence[t - 1]:
            start_cold(used, resident, uses)
        for layer in range(layers):
            event = t * layers + layer
            cache = 0 if pooled else layer
            filled = 0
            while filled < slots and ids[t, layer, filled] >= 0:
                cached[filled] = resident[layer * experts + ids[t, layer, filled]]
                filled += 1
            if filled == 0:
                continue
            ranks = order[t, layer, :filled]
            own = min(served, filled)
            if rule == CACHE_PRIOR:
                high = np.log(max(weights[t, layer, ranks[0]], 1e-38))
                low = np.log(max(weights[t, layer, ranks[filled - 1]], 1e-38))
                seen[layer] += 1
                spread[layer] += (high - low - spread[layer]) / seen[layer]
            choose(rule, strength, keep, own, ranks, weights[t, layer], cached, spread[layer], chosen)
            for rank in range(filled):
                slot = ranks[rank]
                if rank < own:
                    mass[layer, 0] += weights[t, layer, slot]
                    if not chosen[slot]:
                        counts[layer, DROPPED if rule in (DROP_MISSING, DROP_ALL) else CHANGED] += 1
                if chosen[slot]:
                    mass[layer, 1] += weights[t, layer, slot]
            for slot in range(filled):
                if chosen[slot]:
                    block = layer * experts + ids[t, layer, slot]
                    counts[layer, HITS if cached[slot] else MISSES] += 1
                    clock += 1
                    last_use[block] = clock
                    uses[block] += 1
                    spared[block] = event
            for slot in range(filled):
                block = layer * experts + ids[t, layer, slot]
                if chosen[slot] and not cached[slot] and capacities[cache] > 0:
                    clock += 1
                    admit(
                        block, held[cache], used, cache, capacities[cache], policy,
                        resident, last_use, admitted, uses, spared, event, clock, True,
                    )  # fmt: skip
    return counts, mass
