"""Cold start against steady state: the two hit rates of one trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stickymoe.cache import simulate
from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.traces import RoutingTrace

_WARM = 0.9


@dataclass(frozen=True)
class Window:
    """Hit rate of the tokens `start` to `stop - 1` of their sequences."""

    start: int
    stop: int
    hit_rate: float


@dataclass(frozen=True)
class WarmUp:
    """How the hit rate grows after a cold start.

    Args:
        windows: Windows of doubling length.
        cumulative: Hit rate of whole sequences, the cold start in it: what an engine's counter shows.
        steady: Hit rate of the second half of each sequence.
        warm_after: Tokens after which a window reaches nine tenths of the steady rate.
    """

    windows: tuple[Window, ...]
    cumulative: float
    steady: float
    warm_after: int


def warm_up(trace: RoutingTrace, budget: Budget, semantics: Semantics, unanswered: dict[str, str]) -> WarmUp | None:
    """Measure how LRU's hit rate grows, cold at each sequence; None for sequences of less than four tokens.

    What a policy without foresight did for the first w tokens does not depend on the rest, so replaying the first w
    tokens of every sequence, for w = 1, 2, 4, .., gives the hits of each window by subtraction.
    """
    starts = trace.sequence_starts()
    lengths = np.diff(starts)
    place = np.arange(trace.num_tokens) - np.repeat(starts[:-1], lengths)
    longest, typical = int(lengths.max()), int(np.median(lengths))
    if typical < 4:
        unanswered["cold start"] = "half of the sequences are shorter than four tokens"
        return None
    keywords = semantics.keywords(reset="sequence", prefill="token", batch=1)
    half = np.repeat((lengths + 1) // 2, lengths)
    cuts = [1 << power for power in range(20) if 1 << power < typical] + [longest]
    counted = [(0, 0)] + [_count(trace, place < cut, budget, keywords) for cut in cuts[:-1]]
    whole = _count(trace, place >= 0, budget, keywords)
    counted.append(whole)
    windows = tuple(
        Window(start, stop, (hits - before) / (lookups - seen))
        for start, stop, (before, seen), (hits, lookups) in zip([0, *cuts], cuts, counted, counted[1:], strict=False)
        if lookups > seen
    )
    early = _count(trace, place < half, budget, keywords)
    steady = (whole[0] - early[0]) / max(1, whole[1] - early[1])
    warm = next((window.start for window in windows if window.hit_rate >= _WARM * steady), windows[-1].start)
    return WarmUp(windows, whole[0] / whole[1], steady, warm)


def _count(trace: RoutingTrace, keep: np.ndarray, budget: Budget, keywords: dict[str, Any]) -> tuple[int, int]:
    rows = RoutingTrace(
        trace.expert_ids[keep], trace.sequence_ids[keep], trace.num_experts, expert_bytes=trace.expert_bytes
    )
    report = simulate(rows, "lru", **budget.keywords(), **keywords)
    return report.hits, report.lookups
