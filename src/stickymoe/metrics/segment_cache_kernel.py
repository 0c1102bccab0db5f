"""Compiled: the cache of the segment cache best hit rate."""

import numpy as np

from stickymoe.core.compiled import compiled


@compiled
def segment_cache_sums(
    ids: np.ndarray,
    firsts: np.ndarray,
    unit_of_row: np.ndarray,
    units: int,
    segment: int,
    capacity: int,
    table: int,
) -> np.ndarray:
    """Replay one layer's cache that forgets what the next `segment` tokens use least.

    Returns:
        (units, 3): lookups, hits, and first uses that found room among slots never filled.
    """
    sums = np.zeros((units, 3))
    ahead = np.zeros(table, np.int64)
    last = np.zeros(table, np.int64)
    resident = np.zeros(table, np.bool_)
    members = np.zeros(capacity + ids.shape[1], np.int64)
    tokens, top_k = ids.shape
    size = 0
    seen = 0
    horizon = 0
    for t in range(tokens):
        if firsts[t] == t:
            ahead[:] = 0
            last[:] = 0
            resident[:] = False
            size = 0
            seen = 0
            horizon = t
        while horizon < tokens and horizon <= t + segment and firsts[horizon] == firsts[t]:
            for slot in range(top_k):
                if ids[horizon, slot] >= 0:
                    ahead[ids[horizon, slot]] += 1
            horizon += 1
        for slot in range(top_k):
            expert = ids[t, slot]
            if expert < 0:
                break
            ahead[expert] -= 1
            sums[unit_of_row[t], 0] += 1
            if resident[expert]:
                sums[unit_of_row[t], 1] += 1
            elif last[expert] == 0:
                seen += 1
                sums[unit_of_row[t], 2] += seen <= capacity
        for slot in range(top_k):
            expert = ids[t, slot]
            if expert < 0:
                break
            last[expert] = t + 1
            if not resident[expert]:
                resident[expert] = True
                members[size] = expert
                size += 1
        while size > capacity:
            leaves = 0
            for place in range(1, size):
                here, best = members[place], members[leaves]
                if ahead[here] != ahead[best]:
                    if ahead[here] < ahead[best]:
                        leaves = place
                elif last[here] < last[best] or (last[here] == last[best] and here > best):
                    leaves = place
            size -= 1
            resident[members[leaves]] = False
            members[leaves] = members[size]
    return sums
