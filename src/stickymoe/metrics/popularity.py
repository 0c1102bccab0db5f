"""Counts of uses and the order of experts by them."""

import numpy as np
from jaxtyping import Int

# Rank of an expert that nobody used where the order was learned.
UNRANKED = -1


def uses(ids: Int[np.ndarray, "tokens top_k"], group_of_row: np.ndarray, groups: int, table: int) -> np.ndarray:
    """Count the uses of each expert in each group of rows; (groups, table) int64."""
    filled = ids >= 0
    keys = (ids + group_of_row[:, None] * table)[filled]
    return np.bincount(keys, minlength=groups * table).reshape(groups, table)


def first_uses(ids: Int[np.ndarray, "tokens top_k"], table: int) -> Int[np.ndarray, " table"]:
    """Return where each expert is first seen, slot after slot, token after token; the number of slots if never."""
    flat = ids.ravel()
    first = np.full(table, flat.size, dtype=np.int64)
    places = np.flatnonzero(flat >= 0)[::-1]
    first[flat[places]] = places
    return first


def popularity_orders(counts: Int[np.ndarray, "groups table"], first: Int[np.ndarray, " table"]) -> np.ndarray:
    """Return each group's experts, the most used first; of equals the one seen first, whatever their numbers."""
    tie = np.argsort(first, kind="stable")
    order: np.ndarray = tie[np.argsort(-counts[:, tie], axis=1, kind="stable")]
    return order


def popularity_ranks(counts: Int[np.ndarray, "groups table"], first: Int[np.ndarray, " table"]) -> np.ndarray:
    """Return each expert's place in its group's order, UNRANKED where the group never used it."""
    order = popularity_orders(counts, first)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None, :], axis=1)
    ranks[counts == 0] = UNRANKED
    return ranks


def of_others(counts: Int[np.ndarray, "groups table"]) -> Int[np.ndarray, "groups table"]:
    """Return for each group what all other groups used."""
    others: np.ndarray = counts.sum(axis=0) - counts
    return others
