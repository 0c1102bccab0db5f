"""Slots as a trace wants them: filled from the front, heaviest first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stickymoe.traces.checks import UNASSIGNED

# Tokens sorted at once: beside the trace only this much more is held
BLOCK = 2**14


def by_weight(expert_ids: np.ndarray, weights: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays with each token's slots sorted by falling weight, empty slots last; ties keep their order.

    Args:
        expert_ids: (tokens, layers, top_k), -1 where empty.
        weights: The same shape, finite.
        others: The same shape.
    """

    def key(block: slice) -> np.ndarray:
        return np.where(expert_ids[block] == UNASSIGNED, np.float32(np.inf), -weights[block])

    return _sorted(key, expert_ids, weights, *others)


def filled_first(expert_ids: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays with each token's empty slots moved to the end; the filled ones keep their order."""
    return _sorted(lambda block: expert_ids[block] == UNASSIGNED, expert_ids, *others)


def _sorted(key: Callable[[slice], np.ndarray], *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays with their slots sorted by a rising key; themselves where they are."""
    found: list[np.ndarray] = list(arrays)
    for start in range(0, len(arrays[0]), BLOCK):
        block = slice(start, start + BLOCK)
        keys = key(block)
        if (keys[..., 1:] >= keys[..., :-1]).all():
            continue
        if found[0] is arrays[0]:
            found = [array.copy() for array in arrays]
        order = np.argsort(keys, axis=-1, kind="stable")
        for array in found:
            array[block] = np.take_along_axis(array[block], order, -1)
    return tuple(found)
