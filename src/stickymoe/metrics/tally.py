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
    """

    name: str
    of: Callable[[np.ndarray], np.ndarray]
    needs: str
    high: float = 1.0
    pooled: bool = False
    low: float = 0.0


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
    by_layer: dict[str, list[np.ndarray]] = {figure.name: [] for figure in figures}
    pooled: dict[str, np.ndarray] = {}
    pool: np.ndarray | None = None
    for layer in range(trace.num_layers):
        sums = tally(trace, layer, units)
        if any(figure.pooled for figure in figures):
            pool = sums if pool is None else pool + sums
        for figure in figures:
            by_layer[figure.name].append(resampled(sums, figure.of, draws))
    if pool is not None:
        pooled = {figure.name: resampled(pool, figure.of, draws) for figure in figures if figure.pooled}
    found = {}
    for figure in figures:
        layers = np.array(by_layer[figure.name])
        overall = pooled.get(figure.name, _mean(layers))
        spans = [_span(row, figure, units, resampling) for row in (overall, *layers)]
        found[figure.name] = Value(
            _known(overall[0]), spans[0], tuple(_known(row[0]) for row in layers), tuple(spans[1:])
        )
    return found


def plain_value(layers: np.ndarray) -> Value:
    """Return the layers' values and their mean, without intervals."""
    values = tuple(_known(value) for value in layers)
    return Value(_known(_mean(layers[:, None])[0]), None, values, (None,) * len(values))


def _mean(values: np.ndarray) -> np.ndarray:
    # The mean over layers of what is defined; NaN where nothing is.
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64))


def _span(row: np.ndarray, figure: Figure, units: Units, resampling: Resampling | None) -> Span | None:
    # A value, then what the resamples give.
    if resampling is None or row.size == 1:
        return None
    value, samples = float(row[0]), row[1:][~np.isnan(row[1:])]
    # A value that most resamples do not define hangs on single units: nothing is known of its spread.
    if np.isnan(value) or 2 * samples.size < resampling.resamples:
        return None
    half = float(resampling.half_width(samples.std(), units.count))
    return max(figure.low, value - half), min(figure.high, value + half)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
