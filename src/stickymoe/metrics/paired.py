"""The difference of two routers on the same text, resampled together."""

from typing import NamedTuple

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.core.settings import require_one_of
from stickymoe.metrics.intervals import Interval, Resampling, resampled
from stickymoe.metrics.switching import EXPERT_OVERLAP, SET_SWITCH_RATE, SWITCH_RATE, pairs
from stickymoe.metrics.tally import Figure, Tally, by_layer, ratio
from stickymoe.metrics.units import Units, units_of
from stickymoe.metrics.utilisation import OVERLAP_BY_USE, entropy_figure, load_figures, served_by, tokens_per_expert
from stickymoe.traces import RoutingTrace


def paired_difference(
    before: RoutingTrace, after: RoutingTrace, name: str, *, resampling: Resampling | None = None
) -> Interval:
    """Return by how much a measure, meaned over layers, differs between two traces of the same tokens.

    The same sequences are drawn for both in each resample, so that what a hard text does to both cancels. Layers need
    not match, tokens must.

    Args:
        before: The trace to compare with.
        after: The other; the same sequences of the same length in the same order.
        name: `switch_rate`, `set_switch_rate`, `expert_overlap`, `overlap_by_use`, `utilisation_entropy`,
            `load_variation` or `load_busiest`.
        resampling: 500 resamples and 95 % if not given.

    Returns:
        after - before, its interval (None where there is one unit), and the number of units.

    Raises:
        SettingError: There is no such measure.
        TraceError: The traces are of different tokens, or the measure is not defined for some layer.
    """
    require_one_of("measure", name, _catalogue(before))
    if before.sequence_starts().tolist() != after.sequence_starts().tolist():
        found = f"{before.num_tokens} tokens in {before.num_sequences} sequences"
        other = f"{after.num_tokens} in {after.num_sequences}"
        raise TraceError(f"paired traces must be of the same tokens, got {found} and {other}, or other lengths")
    units = units_of(before)
    sides = []
    for trace in (before, after):
        tally, figure = _catalogue(trace)[name]
        by_layer(trace, tally, figure)  # raises where it is not defined
        sides.append(Counted(trace, tally, figure, units))
    return figure_difference(sides[0], sides[1], resampling)


class Counted(NamedTuple):
    """A figure of a trace, and the units it is counted over."""

    trace: RoutingTrace
    tally: Tally
    figure: Figure
    units: Units


def figure_difference(before: Counted, after: Counted, resampling: Resampling | None = None) -> Interval:
    """Return by how much a figure differs between two traces, the same units drawn for both in each resample.

    Args:
        before: What to compare with.
        after: The other, over units that are as many and pair off in order.
        resampling: 500 resamples and 95 % if not given.

    Returns:
        after - before, its interval (None where there is one unit), and the number of units.
    """
    resampling, count = resampling or Resampling(), before.units.count
    draws = np.ones((1, count))
    if count > 1:
        draws = np.concatenate([draws, resampling.draws(count)])
    spread = _redrawn(after, draws) - _redrawn(before, draws)
    difference = float(spread[0])
    if count < 2:
        return Interval(difference, None, None, count)
    known = spread[1:][~np.isnan(spread[1:])]
    half = float(resampling.half_width(known.std(), count))
    return Interval(difference, difference - half, difference + half, count)


def _redrawn(counted: Counted, draws: np.ndarray) -> np.ndarray:
    """Return a figure, over all layers, for each row of draws."""
    trace, tally, figure, units = counted
    sums = [tally(trace, layer, units) for layer in range(trace.num_layers)]
    if figure.pooled:
        return resampled(np.sum(sums, axis=0), figure.of, draws)
    values = np.array([resampled(layer, figure.of, draws) for layer in sums])
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0).astype(np.float64))


def _catalogue(trace: RoutingTrace) -> dict[str, tuple[Tally, Figure]]:
    counted = [(pairs(1), figure) for figure in (SWITCH_RATE, SET_SWITCH_RATE, EXPERT_OVERLAP)]
    counted.append((served_by, OVERLAP_BY_USE))
    loads = (entropy_figure(trace.num_experts), *load_figures(trace.num_experts))
    counted += [(tokens_per_expert, figure) for figure in loads]
    return {figure.name: (tally, figure) for tally, figure in counted}
