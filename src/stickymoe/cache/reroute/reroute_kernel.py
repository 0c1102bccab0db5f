"""Compiled: replay of one pool that has a say in which experts serve a token."""

from typing import Any

import numpy as np

from stickymoe.cache.policies.rules_kernel import open_event
from stickymoe.cache.replay_kernel import HITS, MISSES, Pool, Requests, begin, serve
from stickymoe.core.compiled import borrowed, compiled

NONE, MAX_RANK, CUMULATIVE, CACHE_PRIOR, DROP_MISSING, DROP_ALL = range(6)
# The first axis of the counts, after the HITS and MISSES of a replay.
CHANGED, DROPPED, KINDS = 2, 3, 4


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
    state: Any,
    pool: Pool,
    requests: Requests,
    experts: int,
    order: np.ndarray,
    rule: int,
    strength: float,
    keep: int,
    served: int,
    counts: np.ndarray,
    mass: np.ndarray,
) -> None:
    """Count (kind, layer), and sum the gate mass of the router's choice and of what served, (2, layer).

    An event is a row at a layer: choose against the state at its start, look the chosen up, use them and admit the
    missing in the trace's slot order. `order` holds the slots by weight, heaviest first, empty ones last.
    """
    state, pool, requests = borrowed(state), borrowed(pool), borrowed(requests)
    ids = requests.ids
    layers, slots = ids.shape[1], ids.shape[2]
    event, waiting, found = np.empty(slots, np.int64), np.empty(slots, np.int64), np.empty(slots, np.bool_)
    gates, used = np.zeros(slots, np.float64), np.zeros(slots, np.float64)
    chosen, cached = np.zeros(slots, np.bool_), np.zeros(slots, np.bool_)
    spread, seen = np.zeros(layers, np.float64), np.zeros(layers, np.int64)
    for row in range(ids.shape[0]):
        begin(state, pool, requests.heads[row])
        for layer in range(layers):
            open_event(state, layer)
            filled = 0
            while filled < slots and ids[row, layer, filled] >= 0:
                cached[filled] = pool.resident[layer * experts + ids[row, layer, filled]]
                gates[filled] = requests.weights[row, layer, filled]
                filled += 1
            if filled == 0:
                continue
            ranks = order[row, layer, :filled]
            own = min(served, filled)
            if rule == CACHE_PRIOR:
                high, low = np.log(max(gates[ranks[0]], 1e-38)), np.log(max(gates[ranks[filled - 1]], 1e-38))
                seen[layer] += 1
                spread[layer] += (high - low - spread[layer]) / seen[layer]
            choose(rule, strength, keep, own, ranks, gates, cached, spread[layer], chosen)
            for rank in range(filled):
                slot = ranks[rank]
                if rank < own:
                    mass[0, layer] += gates[slot]
                    if not chosen[slot]:
                        counts[DROPPED if rule in (DROP_MISSING, DROP_ALL) else CHANGED, layer] += 1
                if chosen[slot]:
                    mass[1, layer] += gates[slot]
            asked = 0
            for slot in range(filled):
                if chosen[slot]:
                    event[asked] = layer * experts + ids[row, layer, slot]
                    used[asked] = gates[slot]
                    asked += 1
            missing = serve(state, pool, event[:asked], used, waiting, found)
            counts[MISSES, layer] += missing
            counts[HITS, layer] += asked - missing
