"""How a measure is made: sums over the units of a trace, and what figures the sums give, with their intervals.

Everything measured is a function of sums (pairs, switches, uses of each expert, ...), so that a resample is a weighted
sum of what was counted once, and no trace is read a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.metrics.intervals import Resampling, resampled
from stickymoe.metrics.units import Units, whole
from stickymoe.traces import RoutingTrace

# Counts one layer; returns (units, columns) float64. Columns of a pooled figure mean the same in every layer.
Tally: TypeAlias = Callable[[RoutingTrace, int, Units], np.ndarray]
Span: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """A number made of sums.

    Args:
        name: As the reports spell it.
        of: Takes rows of sums (rows, columns), returns a value a row, NaN where the sums define none.
        needs: What it takes to be defined, as in "switch rate needs at least one pair".
        high: The upper end of its range.
        pooled: The overall value comes from the sums of all layers; otherwise it is the mean of the layers' values.
        low: The lower end.
        reach: Tokens that one observation spans. Blocks of one sequence that are shorter share tokens: they are no
            separate observations, and there is no interval.
    """

    name: str
    of: Callable[[np.ndarray], np.ndarray]
    needs: str
    high: float = 1.0
    pooled: bool = False
    low: float = 0.0
    reach: int = 1


@dataclass(frozen=True)
class Value:
    """A figure, overall and by layer; None where it is not defined or there is nothing to resample."""

    mean: float | None
    interval: Span | None
    per_layer: tuple[float | None, ...]
    per_layer_interval: tuple[Span | None, ...]


def ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """Divide; NaN where `bottom` is 0."""
    quotient: np.ndarray = np.divide(top, bottom, out=np.full(np.shape(bottom), np.nan), where=bottom != 0)
    return quotient


def by_layer(trace: RoutingTrace, tally: Tally, figure: Figure) -> np.ndarray:
    """Return the figure of every layer.

    Raises:
        TraceError: It is not defined for some layer.
    """
    one = whole(trace)
    values = np.concatenate([figure.of(tally(trace, layer, one)) for layer in range(trace.num_layers)])
    require_defined(trace.names, figure, values)
    return values


def require_defined(names: Sequence[str], figure: Figure, values: np.ndarray) -> None:
    """Raise, in words, where a value is NaN."""
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        rule = f"{figure.name.replace('_', ' ')} needs {figure.needs}, got none"
        if missing.size == len(values):
            raise TraceError(rule)
        raise TraceError(f"{rule} that layer {names[missing[0]]} served; leave it out with trace.select(layers=...)")


def evaluate(
    trace: RoutingTrace, tally: Tally, figures: Iterable[Figure], units: Units, resampling: Resampling | None
) -> dict[str, Value]:
    """Return the figures of one tally, with intervals if `resampling` is given and there are units to draw from."""
    figures = tuple(figures)
    # The first row draws every unit once, which gives the value itself.
    draws = np.ones((1, units.count))
    if resampling is not None and units.count > 1:
        draws = np.concatenate([draws, resampling.draws(units.count)])
    rows: dict[str, list[np.ndarray]] = {figure.name: [] for figure in figures}
    telling: dict[str, list[np.ndarray]] = {figure.name: [] for figure in figures}
    pool: np.ndarray | None = None
    for layer in range(trace.num_layers):
        sums = tally(trace, layer, units)
        if any(figure.pooled for figure in figures):
            pool = sums if pool is None else pool + sums
        for figure in figures:
            rows[figure.name].append(resampled(sums, figure.of, draws))
            telling[figure.name].append(~np.isnan(figure.of(sums)))
    found = {}
    for figure in figures:
        layers, tell = rows[figure.name], np.array(telling[figure.name])
        overall = _mean(np.array(layers)) if pool is None or not figure.pooled else resampled(pool, figure.of, draws)
        if units.block is not None and figure.reach > units.block:
            tell[:] = False
        span = _span(overall, figure, int(tell.any(axis=0).sum()), resampling)
        spans = [_span(row, figure, int(each.sum()), resampling) for row, each in zip(layers, tell, strict=True)]
        found[figure.name] = Value(_known(overall[0]), span, tuple(_known(row[0]) for row in layers), tuple(spans))
    return found


def plain_value(layers: np.ndarray) -> Value:
    """Return the layers' values and their mean, without intervals."""
    values = tuple(_known(value) for value in layers)
    return Value(_known(_mean(layers[:, None])[0]), None, values, (None,) * len(values))


def _mean(values: np.ndarray) -> np.ndarray:
    # The mean over layers of what is defined; NaN where nothing is.
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64))


def _span(row: np.ndarray, figure: Figure, telling: int, resampling: Resampling | None) -> Span | None:
    # A value, then what the resamples give. Units that say nothing of the figure (too short for a window) are none of
    # the observations: where one alone says something, how far two would differ is not known.
    if resampling is None or row.size == 1 or telling < 2:
        return None
    value, samples = float(row[0]), row[1:][~np.isnan(row[1:])]
    half = float(resampling.half_width(samples.std(), telling))
    return max(figure.low, value - half), min(figure.high, value + half)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
