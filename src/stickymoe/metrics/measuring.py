"""`measure`: every measure of a trace in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.metrics.drifting import drift
from stickymoe.metrics.intervals import Resampling
from stickymoe.metrics.measures import Measures, Row
from stickymoe.metrics.predictors import predictor_recall
from stickymoe.metrics.reuse import reuse_figures, reuse_tally
from stickymoe.metrics.segments import sch_figure, segment_cache, srp_figures
from stickymoe.metrics.skew import Locality, locality
from stickymoe.metrics.switching import SET_SWITCH_RATE, SWITCH_RATE, chance_overlap, overlap_at, pairs
from stickymoe.metrics.tally import Figure, Tally, evaluate, plain_value
from stickymoe.metrics.units import Units, units_of
from stickymoe.metrics.utilisation import (
    OVERLAP_BY_USE,
    coverage_figure,
    entropy_figure,
    load_figures,
    served_by,
    tokens_per_expert,
)
from stickymoe.metrics.windows import chance_working_set, working_set_figure
from stickymoe.metrics.windows import windows as window_tally
from stickymoe.traces import DECODE, PREFILL, RoutingTrace, UsageProfile

# Intervals over fewer units than this are true but so wide, and so moved by one odd unit, that it must be said.
FEW_UNITS = 8
UNITS = {
    "utilisation_entropy": "bits",
    "load_variation": "std over mean",
    "load_busiest": "over the mean",
    "reuse_distance_median": "experts",
    "reuse_distance_90": "experts",
    "working_set": "experts",
    "srp_rho_hat": "over k",
}


def measure(
    trace: RoutingTrace | UsageProfile,
    *,
    windows: Iterable[int] = (8, 32, 128),
    lags: Iterable[int] = (1, 2, 4, 8, 16),
    segments: Iterable[int] = (16, 64),
    capacities: Iterable[int] | None = None,
    intervals: bool = True,
    resampling: Resampling | None = None,
) -> Measures:
    """Measure everything: by layer and overall; together, in prefill and in decode; with intervals.

    A phase is measured as a trace of its own: its pairs, windows, reuse and caches begin with it. What is not defined
    (a window longer than every sequence, a layer that served nothing) is None and has a note that says why. Of a
    profile, which has counts and no order, only what counts tell is measured.

    Args:
        trace: The routing, or usage counts.
        windows: Tokens of each working set, >= 1.
        lags: Distances of overlaps, >= 1.
        segments: Tokens of each SRP and SCH, >= 1.
        capacities: Slots a layer of SCH, static sets and LRU, and budgets of predictors; k, 2k and 4k if not given.
        intervals: Whether to resample.
        resampling: How; 500 resamples and 95 % if not given.

    Returns:
        Rows, verdicts and notes.

    Raises:
        SettingError: A setting breaks its rule.
    """
    lists = {"windows": list(windows), "lags": list(lags), "segments": list(segments)}
    if capacities is not None:
        lists["capacities"] = list(capacities)
    for name, numbers in lists.items():
        if not numbers:
            raise SettingError.broken(name, "at least one number", numbers)
        for number in numbers:
            require_at_least(name, number, 1)
    drawn = (resampling or Resampling()) if intervals else None
    if isinstance(trace, UsageProfile):
        return _measured_profile(trace, lists.get("capacities", [1, 2, 4]))
    sizes = lists.setdefault(
        "capacities", sorted({min(factor * trace.top_k, trace.num_experts) for factor in (1, 2, 4)})
    )
    units = units_of(trace)
    rows: list[Row] = []
    skew: list[tuple[str, Locality]] = []
    missing: dict[str, dict[str, list[str]]] = {}
    for phase, part in _phases(trace):
        cut = units if part is trace else units_of(part)
        rows += _figures_of(part, phase, lists, cut, drawn, missing)
        skew += [(phase, each) for each in locality(part, sizes, resampling=drawn, units=cut)]
    predictions = predictor_recall(trace, sizes, resampling=drawn)
    absent = dict.fromkeys(f"predictor {each.predictor}: {each.without}" for each in predictions if each.without)
    return Measures(
        sizes=_sizes(trace),
        layer_names=trace.names,
        rows=rows,
        locality=skew,
        drift=[drift(trace, size, resampling=drawn) for size in sizes] if units.count > 1 else [],
        predictions=predictions,
        resampling=None
        if drawn is None or units.count < 2
        else {**asdict(drawn), "units": units.kind, "n": units.count},
        notes=[*_notes(trace, units, drawn), *map(_lacking, missing.items()), *absent],
    )


def _phases(trace: RoutingTrace) -> Iterator[tuple[str, RoutingTrace]]:
    yield "all", trace
    if trace.phases is not None and {PREFILL, DECODE} <= set(np.unique(trace.phases).tolist()):
        yield "prefill", trace.select(phase="prefill")
        yield "decode", trace.select(phase="decode")


def _families(
    trace: RoutingTrace, lists: dict[str, list[int]]
) -> Iterator[tuple[Tally, dict[str, int], list[tuple[Figure, float | None]]]]:
    # What is counted together: a tally, its parameters, and the figures made of it with what chance would give.
    experts, top = trace.num_experts, chance_overlap(trace)
    yield pairs(1), {}, [(SWITCH_RATE, 1 - 1 / experts), (SET_SWITCH_RATE, None)]
    for lag in lists["lags"]:
        yield pairs(lag), {"lag": lag}, [(overlap_at(lag), top)]
    yield served_by, {}, [(OVERLAP_BY_USE, top)]
    yield tokens_per_expert, {}, [(each, None) for each in (entropy_figure(experts), *load_figures(experts))]
    yield reuse_tally, {}, [(each, None) for each in reuse_figures(experts)]
    for window in lists["windows"]:
        figure = working_set_figure(experts, window)
        yield window_tally(window), {"window": window}, [(figure, chance_working_set(trace, window))]
    for segment in lists["segments"]:
        yield window_tally(segment), {"segment": segment}, [(each, None) for each in srp_figures(segment)]
        for capacity in lists["capacities"]:
            parameters = {"segment": segment, "capacity": capacity}
            yield segment_cache(segment, capacity), parameters, [(sch_figure(segment), None)]


def _figures_of(
    trace: RoutingTrace,
    phase: str,
    lists: dict[str, list[int]],
    units: Units,
    drawn: Resampling | None,
    missing: dict[str, dict[str, list[str]]],
) -> list[Row]:
    # What is not defined goes into `missing`: by what it needs, then by phase.
    rows = []
    for tally, parameters, figures in _families(trace, lists):
        values = evaluate(trace, tally, [figure for figure, _ in figures], units, drawn)
        for figure, chance in figures:
            row = Row(phase, figure.name, parameters, values[figure.name], UNITS.get(figure.name, "share"), chance)
            rows.append(row)
            if row.value.mean is None:
                missing.setdefault(figure.needs, {}).setdefault(phase, []).append(figure.name.replace("_", " "))
    return rows


def _lacking(item: tuple[str, dict[str, list[str]]]) -> str:
    needs, phases = item
    names = dict.fromkeys(name for found in phases.values() for name in found)
    where = "" if "all" in phases else f" in {' and '.join(phases)}"
    return f"not defined{where}, for want of {needs}: {', '.join(names)}"


def _notes(trace: RoutingTrace, units: Units, drawn: Resampling | None) -> Iterator[str]:
    yield from _unserved(trace.names, np.count_nonzero(trace.expert_ids[..., 0] >= 0, axis=0))
    if drawn is None:
        return
    if units.count < 2:
        yield "no intervals: one sequence of fewer than 64 tokens is a single observation"
    elif trace.num_sequences == 1:
        yield f"intervals are drawn over {units.count} {units.kind}: they tell of this text alone, not of others"
    elif units.count < FEW_UNITS:
        yield f"intervals over {units.count} {units.kind} are wide, and one odd sequence moves them"


def _unserved(names: Sequence[str], tokens: np.ndarray) -> Iterator[str]:
    if idle := [name for name, some in zip(names, tokens.tolist(), strict=True) if not some]:
        yield f"layers that served no token are left out of every mean: {', '.join(idle)}"


def _measured_profile(profile: UsageProfile, capacities: list[int]) -> Measures:
    experts = profile.num_experts
    figures: list[tuple[Figure, dict[str, int], float | None]] = [
        (figure, {}, None) for figure in (entropy_figure(experts), *load_figures(experts))
    ]
    figures += [(coverage_figure(size), {"capacity": size}, min(1.0, size / experts)) for size in capacities]
    rows = []
    for figure, parameters, chance in figures:
        value = plain_value(figure.of(profile.counts.astype(np.float64)))
        rows.append(Row("all", figure.name, parameters, value, UNITS.get(figure.name, "share"), chance))
    sizes = {"layers": profile.num_layers, "num_experts": profile.num_experts, "uses": int(profile.counts.sum())}
    note = "a profile holds counts without order: measures of order, caches and intervals need a routing trace"
    return Measures(sizes, profile.names, rows, notes=[note, *_unserved(profile.names, profile.counts.sum(axis=1))])


def _sizes(trace: RoutingTrace) -> dict[str, int]:
    return {
        "tokens": trace.num_tokens,
        "sequences": trace.num_sequences,
        "layers": trace.num_layers,
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
    }
