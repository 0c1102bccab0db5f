"""Compiled: places among the recently used, in O(log experts) a lookup."""

import numpy as np

from stickymoe.core.compiled import compiled

FIRST_USE, EMPTY = -1, -2


@compiled
def _add(tree: np.ndarray, slot: int, change: int) -> None:
    while slot < tree.size:
        tree[slot] += change
        slot += slot & -slot


@compiled
def _compact(tree: np.ndarray, owner: np.ndarray, last: np.ndarray, clock: int) -> int:
    # Give the experts' last uses the first slots, oldest first, so that the clock may run on.
    tree[:] = 0
    kept = 0
    for slot in range(1, clock + 1):
        expert = owner[slot]
        if expert >= 0 and last[expert] == slot:
            kept += 1
            last[expert] = kept
            owner[kept] = expert
            _add(tree, kept, 1)
    return kept


@compiled
def places(ids: np.ndarray, firsts: np.ndarray, table: int, atomic: bool) -> np.ndarray:
    """Return for each slot how many other experts were used since the last use of its own.

    `firsts` holds each row's first row of its sequence, where all is forgotten. Atomic: a token's experts are all
    looked up before any of them counts as used; otherwise one after the other. A Fenwick tree over the clock marks last
    uses.
    """
    tokens, top_k = ids.shape
    found = np.full((tokens, top_k), EMPTY, np.int32)
    slots = 2 * table + top_k + 1
    tree = np.zeros(slots + 1, np.int64)
    owner = np.full(slots + 1, -1, np.int64)
    last = np.zeros(table, np.int64)
    clock = 0
    used = 0
    for t in range(tokens):
        if firsts[t] == t:
            for slot in range(1, clock + 1):
                last[owner[slot]] = 0
            tree[:] = 0
            clock = 0
            used = 0
        if clock + top_k > slots:
            clock = _compact(tree, owner, last, clock)
        for step in range(2 if atomic else 1):
            for slot in range(top_k):
                expert = ids[t, slot]
                if expert < 0:
                    break
                if step == 0:
                    if last[expert] == 0:
                        found[t, slot] = FIRST_USE
                    else:
                        older = 0
                        at = last[expert]
                        while at > 0:
                            older += tree[at]
                            at -= at & -at
                        found[t, slot] = used - older
                if step == 1 or not atomic:
                    if last[expert] == 0:
                        used += 1
                    else:
                        _add(tree, last[expert], -1)
                    clock += 1
                    last[expert] = clock
                    owner[clock] = expert
                    _add(tree, clock, 1)
    return found
