"""Compiled: how often each expert is used in windows of consecutive tokens."""

import numpy as np

from stickymoe.core.compiled import compiled


@compiled
def window_uses(
    ids: np.ndarray, starts: np.ndarray, unit_of_row: np.ndarray, units: int, window: int, table: int
) -> np.ndarray:
    """Count windows, and in how many an expert was used by c of its tokens; summed over experts.

    A window belongs to the unit of its last token. An expert's count holds for many windows on end, so only its changes
    cost time.

    Returns:
        (units, window + 1): column 0 the windows in which some expert was used, column c >= 1 the pairs (expert,
        window) of count c.
    """
    sums = np.zeros((units, window + 1))
    counts = np.zeros(table, np.int64)
    since = np.zeros(table, np.int64)
    tokens, top_k = ids.shape
    done = 0
    unit = 0
    served = 0
    for t in range(tokens):
        start = starts[t]
        if start == t:
            _settle(sums, counts, since, unit, done)
            counts[:] = 0
            served = 0
        elif unit_of_row[t] != unit:
            _settle(sums, counts, since, unit, done)
        unit = unit_of_row[t]
        for step in range(2):
            row = t - window if step == 0 else t
            if row < start:
                continue
            if ids[row, 0] >= 0:
                served += 1 if step else -1
            for slot in range(top_k):
                expert = ids[row, slot]
                if expert < 0:
                    break
                if counts[expert]:
                    sums[unit, counts[expert]] += done - since[expert]
                since[expert] = done
                counts[expert] += 1 if step else -1
        if t - start + 1 >= window:
            done += 1
            sums[unit, 0] += served > 0
    _settle(sums, counts, since, unit, done)
    return sums


@compiled
def _settle(sums: np.ndarray, counts: np.ndarray, since: np.ndarray, unit: int, done: int) -> None:
    for expert in range(counts.size):
        if counts[expert]:
            sums[unit, counts[expert]] += done - since[expert]
        since[expert] = done


@compiled
def largest_working_set(ids: np.ndarray, starts: np.ndarray, window: int, table: int) -> int:
    """Return the most distinct experts that any whole window uses; -1 where no run is that long."""
    counts = np.zeros(table, np.int64)
    tokens, top_k = ids.shape
    distinct = 0
    largest = -1
    for t in range(tokens):
        if starts[t] == t:
            counts[:] = 0
            distinct = 0
        for slot in range(top_k):
            expert = ids[t, slot]
            if expert >= 0:
                distinct += counts[expert] == 0
                counts[expert] += 1
        if t - window >= starts[t]:
            for slot in range(top_k):
                expert = ids[t - window, slot]
                if expert >= 0:
                    counts[expert] -= 1
                    distinct -= counts[expert] == 0
        if t - starts[t] + 1 >= window:
            largest = max(largest, distinct)
    return largest
