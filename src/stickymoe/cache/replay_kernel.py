"""Replay of one pool in machine code: look up, touch, admit, evict, count. `simulating.py` says what it means.

The rules of the policy are bound to the class of its state, so that this loop is compiled once for each policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stickymoe.cache.policies.rules_kernel import clear, fetch, forget, open_event, open_sequence, touch, victim
from stickymoe.core.compiled import borrowed, compiled, inlined

# What happens at the head of an event group: nothing, a new sequence in a warm cache, a cold start.
SAME, SEQUENCE, COLD = 0, 1, 2
# Which misses are admitted; see `simulating.simulate`.
ALWAYS, WHOLE, BYPASS, NEVER = 0, 1, 2, 3
# The first axis of the counts.
HITS, MISSES, COMPULSORY, LOADS = 0, 1, 2, 3


class Pool(NamedTuple):
    """Slots and who is in them; one value a block, `used` and `residents` in `totals`.

    `size` is what a block takes of the budget, `preloaded` whether it is there from each cold start on.
    """

    resident: np.ndarray
    pinned: np.ndarray
    seen: np.ndarray
    unpinned: np.ndarray
    size: np.ndarray
    preloaded: np.ndarray
    last_request: np.ndarray
    totals: np.ndarray


class Requests(NamedTuple):
    """A piece of what is asked of a pool: ids (rows, layers, slots), -1 where empty, and what goes with each row.

    `groups` bounds the rows that are one event at each layer, `heads` says what happens at its start.
    """

    ids: np.ndarray
    weights: np.ndarray
    phases: np.ndarray
    groups: np.ndarray
    heads: np.ndarray


USED, RESIDENTS, BUDGET = 0, 1, 2


def new_pool(sizes: np.ndarray, budget: int) -> Pool:
    """Return an empty pool for blocks of these sizes."""
    blocks = sizes.size
    flags = np.zeros((5, blocks), dtype=np.uint8)
    totals = np.array([0, 0, budget], dtype=np.int64)
    last = np.zeros(blocks, dtype=np.int64)
    return Pool(flags[0], flags[1], flags[2], flags[3], sizes.astype(np.int64), flags[4], last, totals)


def pin(pool: Pool, chosen: np.ndarray) -> None:
    """Put these blocks, and no others, into an empty pool and keep them over cold starts."""
    pool.resident[:] = chosen
    pool.preloaded[:] = chosen
    pool.totals[USED] = int(pool.size[chosen].sum())
    pool.totals[RESIDENTS] = int(chosen.sum())


@inlined
def begin(state: Any, pool: Pool, head: int) -> None:
    """Do what a group's head says: nothing, tell the policy of a new sequence, or empty all but what is preloaded."""
    if head == SEQUENCE:
        open_sequence(state)
    if head != COLD:
        return
    clear(state)
    pool.seen[:] = 0
    pool.totals[USED] = 0
    pool.totals[RESIDENTS] = 0
    for block in range(pool.size.size):
        pool.resident[block] = pool.preloaded[block]
        if pool.preloaded[block]:
            touch(state, block, 0.0)
            pool.totals[USED] += pool.size[block]
            pool.totals[RESIDENTS] += 1


@compiled
def replay_together(
    state: Any, pool: Pool, requests: Requests, experts: int, unique: bool, admission: int, counts: np.ndarray
) -> None:
    """Replay a piece, an event a group and layer, and add to `counts` (kind, layer, phase)."""
    state, pool, requests = borrowed(state), borrowed(pool), borrowed(requests)
    ids, groups, weights = requests.ids, requests.groups, requests.weights
    layers, slots = ids.shape[1], ids.shape[2]
    room = 1
    for group in range(groups.size - 1):
        room = max(room, groups[group + 1] - groups[group])
    event, waiting = np.empty(room * slots, dtype=np.int64), np.empty(room * slots, dtype=np.int64)
    resident, pinned, seen, last_request = pool.resident, pool.pinned, pool.seen, pool.last_request
    for group in range(groups.size - 1):
        begin(state, pool, requests.heads[group])
        start, stop = max(groups[group], 0), groups[group + 1]
        # where an expert counts once an event, its last request is its use; within one row there is but one
        once = unique and stop - start > 1
        for layer in range(layers):
            open_event(state, layer)
            if once:
                for row in range(start, stop):
                    for slot in range(slots):
                        if ids[row, layer, slot] >= 0:
                            last_request[layer * experts + ids[row, layer, slot]] = row * slots + slot
            distinct, missing = 0, 0
            for row in range(start, stop):
                hits, misses, compulsory, loads = 0, 0, 0, 0
                for slot in range(slots):
                    block = layer * experts + ids[row, layer, slot]
                    # what the second half says is no news, but spares the code a case for negative places at each array
                    if ids[row, layer, slot] < 0 or block < 0:
                        break
                    first = not pinned[block]
                    counted = first or not unique
                    if resident[block]:
                        hits += counted
                    else:
                        misses += counted
                        compulsory += counted and not seen[block]
                        if first:
                            loads += 1
                            waiting[missing] = block
                            missing += 1
                    if first:
                        pinned[block] = 1
                        event[distinct] = block
                        distinct += 1
                    if not once or last_request[block] == row * slots + slot:
                        touch(state, block, np.float64(weights[row, layer, slot]) if weights.size > 0 else 0.0)
                phase = requests.phases[row]
                counts[HITS, layer, phase] += hits
                counts[MISSES, layer, phase] += misses
                counts[COMPULSORY, layer, phase] += compulsory
                counts[LOADS, layer, phase] += loads
            if distinct > 0 and (missing > 0 or pool.totals[USED] > pool.totals[BUDGET]):
                settle(state, pool, event[:distinct], waiting[:missing], admission)
            for number in range(distinct):
                pinned[event[number]] = 0
                seen[event[number]] = 1


@compiled
def replay_in_turn(
    state: Any, pool: Pool, requests: Requests, experts: int, admission: int, counts: np.ndarray
) -> None:
    """Replay a piece, an event a request, and add to `counts` (kind, layer, phase)."""
    state, pool, requests = borrowed(state), borrowed(pool), borrowed(requests)
    ids, groups, weights = requests.ids, requests.groups, requests.weights
    layers, slots = ids.shape[1], ids.shape[2]
    event = np.empty(1, dtype=np.int64)
    resident, pinned, seen = pool.resident, pool.pinned, pool.seen
    for group in range(groups.size - 1):
        begin(state, pool, requests.heads[group])
        for layer in range(layers):
            open_event(state, layer)
            for row in range(max(groups[group], 0), groups[group + 1]):
                hits, misses, compulsory = 0, 0, 0
                for slot in range(slots):
                    block = layer * experts + ids[row, layer, slot]
                    if ids[row, layer, slot] < 0 or block < 0:
                        break
                    touch(state, block, np.float64(weights[row, layer, slot]) if weights.size > 0 else 0.0)
                    missing = 1
                    if resident[block]:
                        hits += 1
                        missing = 0
                        if pool.totals[USED] <= pool.totals[BUDGET]:
                            continue
                    else:
                        misses += 1
                        compulsory += not seen[block]
                        seen[block] = 1
                    event[0] = block
                    pinned[block] = 1
                    settle(state, pool, event, event[:missing], admission)
                    pinned[block] = 0
                phase = requests.phases[row]
                counts[HITS, layer, phase] += hits
                counts[MISSES, layer, phase] += misses
                counts[COMPULSORY, layer, phase] += compulsory
                counts[LOADS, layer, phase] += misses


@inlined
def serve(
    state: Any, pool: Pool, event: np.ndarray, weights: np.ndarray, waiting: np.ndarray, found: np.ndarray
) -> int:
    """Look up, use and admit the experts of an event, each there once; return how many miss.

    `found` gets whether each was resident before, `waiting` is room for those that were not.
    """
    missing = 0
    for number in range(event.size):
        block = event[number]
        found[number] = pool.resident[block]
        if not found[number]:
            waiting[missing] = block
            missing += 1
        pool.pinned[block] = 1
        touch(state, block, weights[number])
    if missing > 0 or (event.size > 0 and pool.totals[USED] > pool.totals[BUDGET]):
        settle(state, pool, event, waiting[:missing], ALWAYS)
    for number in range(event.size):
        pool.pinned[event[number]] = 0
    return missing


@inlined
def bring(state: Any, pool: Pool, block: int) -> None:
    """Fetch a pinned `block` ahead of its use into a pool of slots that has a free one, or a resident not pinned."""
    fetch(state, block)
    pool.resident[block] = 1
    if pool.totals[USED] < pool.totals[BUDGET]:
        pool.totals[USED] += 1
        pool.totals[RESIDENTS] += 1
        return
    chosen = victim(state, pool.pinned)
    forget(state, chosen)
    pool.resident[chosen] = 0


@inlined
def settle(state: Any, pool: Pool, event: np.ndarray, waiting: np.ndarray, admission: int) -> None:
    """Admit the misses of an event, then let go whom the budget does not hold.

    `event` holds the distinct blocks of the event, all pinned; `waiting` those of them that are not resident.
    """
    if admission == NEVER:
        for number in range(waiting.size):
            forget(state, waiting[number])
        return
    used, budget = pool.totals[USED], pool.totals[BUDGET]
    residents = pool.totals[RESIDENTS] + waiting.size
    outsiders = residents - event.size
    for number in range(waiting.size):
        block = waiting[number]
        pool.resident[block] = 1
        used += pool.size[block]
    while used > budget:
        spare = outsiders > 0 and admission != BYPASS
        if admission == WHOLE and not spare:
            break
        outsiders -= 1
        chosen = victim(state, pool.pinned if spare else pool.unpinned)
        forget(state, chosen)
        pool.resident[chosen] = 0
        used -= pool.size[chosen]
        residents -= 1
    pool.totals[USED] = used
    pool.totals[RESIDENTS] = residents
