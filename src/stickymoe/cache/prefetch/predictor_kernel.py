"""Compiled: which experts a layer will ask for, learned from what came before."""

import numpy as np

from stickymoe.core.compiled import compiled


@compiled
def take_best(score: np.ndarray, row: np.ndarray) -> None:
    """Write the experts of the largest scores above 0 into `row`, best first, smaller ids first among equals.

    `score` is zeroed where taken.
    """
    row[:] = -1
    for place in range(row.size):
        best = 0
        for expert in range(1, score.size):
            if score[expert] > score[best]:
                best = expert
        if score[best] <= 0:
            return
        row[place] = best
        score[best] = 0


@compiled
def transitions(
    source: np.ndarray, target: np.ndarray, first: np.ndarray, back: int, delay: int, experts: int, width: int
) -> np.ndarray:
    """Predict each row of `target` from the row of `source` that lies `back` rows before; (tokens, width).

    score(e) = sum over source experts s of count(s -> e) / count(s), counted over the rows at least `delay` before.
    `first` holds the first row of each row's sequence; no pair crosses it.
    """
    tokens, top_k = target.shape
    found = np.full((tokens, width), -1, np.int32)
    counts = np.zeros((experts, experts), np.int32)
    occurrences = np.zeros(experts, np.int64)
    score = np.zeros(experts, np.float64)
    for t in range(tokens):
        learned = t - delay
        if learned >= 0 and learned - back >= first[learned]:
            for slot in range(top_k):
                before = source[learned - back, slot]
                if before < 0:
                    break
                occurrences[before] += 1
                for other in range(top_k):
                    if target[learned, other] < 0:
                        break
                    counts[before, target[learned, other]] += 1
        if t - back < first[t]:
            continue
        score[:] = 0
        for slot in range(top_k):
            before = source[t - back, slot]
            if before < 0:
                break
            if occurrences[before] > 0:
                for expert in range(experts):
                    score[expert] += counts[before, expert] / occurrences[before]
        take_best(score, found[t])
    return found


@compiled
def popularity(target: np.ndarray, delay: int, experts: int, width: int) -> np.ndarray:
    """Predict for each row the experts used most often over the rows at least `delay` before; (tokens, width)."""
    tokens, top_k = target.shape
    found = np.full((tokens, width), -1, np.int32)
    counts = np.zeros(experts, np.float64)
    score = np.zeros(experts, np.float64)
    for t in range(tokens):
        if t - delay >= 0:
            for slot in range(top_k):
                if target[t - delay, slot] < 0:
                    break
                counts[target[t - delay, slot]] += 1
        score[:] = counts
        take_best(score, found[t])
    return found
