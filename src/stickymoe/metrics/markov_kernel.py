"""Compiled: what the experts of one token say about those of another."""

import numpy as np

from stickymoe.core.compiled import compiled

UNKNOWN = -1


@compiled
def transitions(
    source: np.ndarray, target: np.ndarray, before: np.ndarray, fold_of_row: np.ndarray, folds: int, experts: int
) -> tuple[np.ndarray, np.ndarray]:
    """Count, for each fold, pairs (source expert, target expert) of rows (before[t], t), and the source experts."""
    pairs = np.zeros((folds, experts, experts), np.int32)
    sources = np.zeros((folds, experts), np.int64)
    for t in range(len(before)):
        if before[t] < 0:
            continue
        for slot in range(source.shape[1]):
            expert = source[before[t], slot]
            if expert < 0:
                break
            sources[fold_of_row[t], expert] += 1
            for other in range(target.shape[1]):
                if target[t, other] < 0:
                    break
                pairs[fold_of_row[t], expert, target[t, other]] += 1
    return pairs, sources


@compiled
def markov_ranks(
    source: np.ndarray, target: np.ndarray, before: np.ndarray, weights: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """Return for each slot of `target` its expert's rank by score, or UNKNOWN where it has none.

    An expert's score is the sum of `weights` from the source experts to it. Equal scores stand as in `order`, the
    experts by popularity; an expert that is not in `order` has no rank. Without a source (before[t] < 0) all are equal.
    """
    tokens, top_k = target.shape
    ranks = np.full((tokens, top_k), UNKNOWN, np.int64)
    place = np.full(weights.shape[0], UNKNOWN, np.int64)
    for at in range(len(order)):
        place[order[at]] = at
    known = np.zeros((weights.shape[0], len(order)), np.float32)
    for expert in range(weights.shape[0]):
        for at in range(len(order)):
            known[expert, at] = weights[expert, order[at]]
    score = np.zeros(len(order), np.float32)
    for t in range(tokens):
        score[:] = 0
        for slot in range(source.shape[1] if before[t] >= 0 else 0):
            expert = source[before[t], slot]
            if expert < 0:
                break
            for at in range(len(order)):
                score[at] += known[expert, at]
        for slot in range(top_k):
            expert = target[t, slot]
            if expert < 0:
                break
            if place[expert] == UNKNOWN:
                continue
            own = score[place[expert]]
            rank = 0
            for at in range(place[expert]):
                rank += score[at] >= own
            for at in range(place[expert] + 1, len(order)):
                rank += score[at] > own
            ranks[t, slot] = rank
    return ranks
