"""Compiled: what tokens share with an earlier one."""

import numpy as np

from stickymoe.core.compiled import compiled

PAIRS, SWITCHES, SET_SWITCHES, OVERLAP, COLUMNS = range(5)


@compiled
def pair_sums(ids: np.ndarray, starts: np.ndarray, unit_of_row: np.ndarray, units: int, lag: int) -> np.ndarray:
    """Sum over pairs (t - lag, t) of one run that a layer served at both ends; (units, COLUMNS)."""
    sums = np.zeros((units, 4))
    tokens, top_k = ids.shape
    for t in range(lag, tokens):
        before = t - lag
        if before < starts[t] or ids[t, 0] < 0 or ids[before, 0] < 0:
            continue
        shared = 0
        size = 0
        size_before = 0
        for slot in range(top_k):
            expert = ids[t, slot]
            if ids[before, slot] >= 0:
                size_before += 1
            if expert >= 0:
                size += 1
                for other in range(top_k):
                    if ids[before, other] == expert:
                        shared += 1
        unit = unit_of_row[t]
        sums[unit, 0] += 1
        sums[unit, 1] += ids[t, 0] != ids[before, 0]
        sums[unit, 2] += shared != size or shared != size_before
        sums[unit, 3] += shared / size
    return sums
