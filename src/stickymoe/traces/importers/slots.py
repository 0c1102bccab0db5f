"""Slots as a trace wants them: filled from the front, heaviest first, weights finite or left out."""

from __future__ import annotations

import numpy as np

from stickymoe.traces.checks import UNASSIGNED


def by_weight(expert_ids: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and weights with each token's slots sorted by falling weight, empty slots last; ties keep their order.

    Args:
        expert_ids: (tokens, layers, top_k), -1 where empty.
        weights: The same shape, finite.
    """
    key = np.where(expert_ids == UNASSIGNED, np.inf, -weights.astype(np.float64))
    if (key[..., 1:] >= key[..., :-1]).all():
        return expert_ids, weights
    order = np.argsort(key, axis=-1, kind="stable")
    return np.take_along_axis(expert_ids, order, -1), np.take_along_axis(weights, order, -1)


def filled_first(expert_ids: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays with each token's empty slots moved to the end; the filled ones keep their order."""
    empty = expert_ids == UNASSIGNED
    if not (empty[..., :-1] & ~empty[..., 1:]).any():
        return (expert_ids, *others)
    order = np.argsort(empty, axis=-1, kind="stable")
    return tuple(np.take_along_axis(array, order, -1) for array in (expert_ids, *others))
