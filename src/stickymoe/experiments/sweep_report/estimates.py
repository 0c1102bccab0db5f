"""Means, paired differences and ratios over seeds, each with its interval, or with none where there is one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stickymoe.experiments.results import RunResult
from stickymoe.metrics.intervals import Interval, Resampling, mean_interval

RESAMPLING = Resampling(resamples=2000)
Results = Mapping[int, RunResult]
Value = Callable[[RunResult], "float | None"]


def mean_of(results: Results, value: Value) -> Interval | None:
    """Return the mean over seeds; None where a run lacks the value or there is none."""
    values = [value(result) for result in results.values()]
    known = [found for found in values if found is not None]
    return mean_interval(known, RESAMPLING) if known and len(known) == len(values) else None


def paired(
    before: Results, after: Results, difference: Callable[[RunResult, RunResult], float | None]
) -> Interval | None:
    """Return the mean of `difference(before, after)` over the seeds that both have."""
    values = [difference(before[seed], after[seed]) for seed in sorted(before.keys() & after.keys())]
    known = [value for value in values if value is not None]
    return mean_interval(known, RESAMPLING) if known and len(known) == len(values) else None


def ratio(above: list[float], below: list[float]) -> Interval | None:
    """Return sum(above) / sum(below) over paired seeds, both redrawn together.

    A ratio of sums: a seed whose denominator is small does not outweigh the others.

    Returns:
        None where there is nothing to divide by.
    """
    if not above or sum(below) == 0:
        return None
    value, n = sum(above) / sum(below), len(above)
    if n < 2:
        return Interval(value, None, None, n)
    draws = RESAMPLING.draws(n)
    bottom = draws @ np.array(below)
    with np.errstate(divide="ignore", invalid="ignore"):
        redrawn = draws @ np.array(above) / bottom
    redrawn = redrawn[np.isfinite(redrawn)]
    half = float(RESAMPLING.half_width(redrawn.std(), n))
    return Interval(value, value - half, value + half, n)


def paired_ratio(above: Results, below: Results, value: Value) -> Interval | None:
    """Return the ratio of a value between two variants over the seeds that both have."""
    seeds = sorted(above.keys() & below.keys())
    pairs = [(value(above[seed]), value(below[seed])) for seed in seeds]
    known = [(one, two) for one, two in pairs if one is not None and two is not None]
    if len(known) < len(pairs):
        return None
    return ratio([one for one, _ in known], [two for _, two in known])


def less(one: float, interval: Interval | None) -> Interval | None:
    """Return `one - interval`: a reduction out of a ratio."""
    if interval is None:
        return None
    low = None if interval.high is None else one - interval.high
    high = None if interval.low is None else one - interval.low
    return Interval(one - interval.mean, low, high, interval.n)
