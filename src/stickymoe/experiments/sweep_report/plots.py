"""Plots of a size: quality against locality, layers, load; one trace a variant, so that each can be switched off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.metrics_file import LayerMeasure, RoutingMeasures
from stickymoe.experiments.page.plots import axes, framed, in_percent
from stickymoe.experiments.pareto import non_dominated
from stickymoe.experiments.sweep_report.label_sides import label_sides
from stickymoe.experiments.sweep_report.looks import VariantLook
from stickymoe.experiments.sweep_report.paper import paper, paper_perplexity, paper_value
from stickymoe.experiments.sweep_report.run_pages import anchor_of
from stickymoe.experiments.sweep_report.summary import MEASURES, SizeSummary, VariantSummary
from stickymoe.metrics.intervals import Interval

Plot = dict[str, Any]
Looks = Mapping[str, VariantLook]
PAPER = "the paper"
"""The name under which the paper's points are switched on."""

BEATEN = 0.35
_LAYER_MEASURES: dict[str, Callable[[RoutingMeasures], LayerMeasure]] = {
    "switch rate": lambda found: found.switch_rate,
    "set switch rate": lambda found: found.set_switch_rate,
    "overlap": lambda found: found.expert_overlap,
    "gate entropy, bits": lambda found: found.gate_entropy_bits,
    "gate margin": lambda found: found.gate_margin,
    "load CV": lambda found: found.load_cv,
}


def pareto_plot(size: SizeSummary, measure: str, looks: Looks) -> Plot:
    """Draw a locality measure in percent against perplexity.

    Means with intervals and a line through those that no other beats in both; beaten ones and single runs are faint.

    Args:
        size: The variants.
        measure: `hit_rate` or `switch_rate`.
        looks: How each is drawn.
    """
    higher = measure == "hit_rate"
    shown = [each for each in size.variants.values() if each.means[measure] is not None]
    points = [(_mean(each, measure) * (1 if higher else -1), _mean(each, "perplexity")) for each in shown]
    front = non_dominated(points)
    data: list[Plot] = [
        {"type": "scatter", "mode": "lines", "x": [in_percent(abs(points[index][0])) for index in front],
         "y": [points[index][1] for index in front], "line": {"color": "var:muted", "width": 1}, "hoverinfo": "skip"}
    ]  # fmt: skip
    xs = [abs(x) for x, _ in points]
    named = [each.label if index in front or each.name == BASELINE else "" for index, each in enumerate(shown)]
    sides = label_sides([(x, y) for x, (_, y) in zip(xs, points, strict=True)], named, front) if shown else []
    for index, (each, side) in enumerate(zip(shown, sides, strict=True)):
        data.append(_mean_point(size.size, each, measure, looks[each.name], index in front, side))
        if len(each.seeds) > 1:
            data.append(_seed_points(size.size, each, measure, looks[each.name]))
    data += _dense_line(size, xs)
    word = "hit rate, % (higher is better →)" if higher else "← switch rate, % (lower is better)"
    layout = axes(word, "← perplexity (lower is better)") | {"showlegend": False}
    papers = _paper_points(size.size, measure)
    if xs:
        across, up = [in_percent(x) for x in xs], [y for trace in data for y in trace["y"]]
        frame = _frame(across, up)  # not of the bars: two seeds make them enormous
        for axis, limits in frame.items():
            layout[axis] |= {"range": limits}
        papers["meta"]["frame"] = _frame(across + papers["x"], up + papers["y"])
    return {"data": [*data, papers], "layout": layout}


def _frame(xs: list[float], ys: list[float]) -> dict[str, list[float]]:
    return {"xaxis": list(framed(xs, 0.12, 5.0)), "yaxis": list(framed(ys, 0.12, 1.0))}


def layers_plot(size: SizeSummary, looks: Looks) -> Plot:
    """Draw a measure over layers, a line a variant; which measure can be chosen."""
    shown = [each for each in size.variants.values() if not each.is_dense]
    choices = {name: [_by_layer(each, of) for each in shown] for name, of in _LAYER_MEASURES.items()}
    data = [
        line_of(size.size, each, looks[each.name]) | {
            "mode": "lines+markers", "x": [f"L{layer}" for layer in range(len(values))], "y": values,
            "hovertemplate": each.label + "<br>%{x}: %{y:.3f}<extra></extra>",
        }
        for each, values in zip(shown, choices["switch rate"], strict=True)
    ]  # fmt: skip
    layout = axes("layer (0 is nearest to the input)", "mean over seeds") | {"showlegend": False}
    layout["xaxis"] |= {"type": "category"}
    layout["yaxis"] |= {"rangemode": "tozero"}
    return {"data": data, "layout": layout, "choices": choices}


def load_plot(size: SizeSummary, measure: str, title: str, looks: Looks) -> Plot:
    """Draw a measure of the load, a line a variant."""
    shown = [each for each in reversed(size.variants.values()) if each.means[measure] is not None]
    data = [
        {
            "type": "scatter", "mode": "markers", "y": [each.label], "x": [round(_mean(each, measure), 4)],
            "error_x": bars([each.means[measure]], 1),
            "marker": {"color": looks[each.name].colour, "symbol": looks[each.name].symbol, "size": 9},
            "meta": meta_of(size.size, each), "hovertemplate": each.label + ": %{x:.3f}<extra></extra>",
        }
        for each in shown
    ]  # fmt: skip
    layout = axes(title, "") | {"showlegend": False, "tall": 0.75 * len(shown)}
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": [each.label for each in shown]}
    layout["yaxis"]["dtick"] = 1  # no name is left out where lines are close
    layout["xaxis"] |= {"range": [0, 1.15 * max((_mean(each, measure) for each in shown), default=1.0)]}
    return {"data": data, "layout": layout}


def _mean_point(size: str, each: VariantSummary, measure: str, look: VariantLook, on_front: bool, place: str) -> Plot:
    seeds = "one seed" if len(each.seeds) == 1 else f"{len(each.seeds)} seeds"
    kept = "" if each.share_kept is None else f"<br>gain kept {100 * each.share_kept.mean:.0f} %"
    name = "hit rate" if measure == "hit_rate" else "switch rate"
    beaten = "" if on_front else "<br>beaten in both by another"
    return {
        "type": "scatter", "mode": "markers+text" if place else "markers",
        "x": [in_percent(_mean(each, measure))], "y": [round(_mean(each, "perplexity"), 2)],
        "text": [each.label], "textposition": place or "middle right", "textfont": {"size": 10.5, "color": "var:muted"},
        "error_x": bars([each.means[measure]], 100), "error_y": bars([each.means["perplexity"]], 1),
        "opacity": 1 if on_front else BEATEN, "meta": meta_of(size, each), "cliponaxis": False,
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 10},
        "hovertemplate": f"<b>{each.label}</b>, {seeds}<br>{name} %{{x:.1f}} %<br>perplexity %{{y:.1f}}{kept}{beaten}"
                         "<extra></extra>",
    }  # fmt: skip


def _seed_points(size: str, each: VariantSummary, measure: str, look: VariantLook) -> Plot:
    value = MEASURES[measure]
    known = [(seed, result, found) for seed, result in each.results.items() if (found := value(result)) is not None]
    return {
        "type": "scatter", "mode": "markers", "opacity": BEATEN,
        "x": [in_percent(found) for _, _, found in known],
        "y": [round(result.read.perplexity, 2) for _, result, _ in known],
        "customdata": [anchor_of(size, each.name, seed) for seed, _, _ in known],
        "text": [f"{size}/{seed}/{each.name}" for seed, _, _ in known],
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 5}, "meta": meta_of(size, each),
        "hovertemplate": "%{text}<br>%{x:.1f} %, perplexity %{y:.1f}<extra></extra>",
    }  # fmt: skip


def _dense_line(size: SizeSummary, xs: list[float]) -> list[Plot]:
    if "dense" not in size.variants or not xs:
        return []
    dense = size.variants["dense"]
    left, right = in_percent(min(xs)), in_percent(max(xs))
    return [{
        "type": "scatter", "mode": "lines", "x": [left, right], "y": [round(_mean(dense, "perplexity"), 2)] * 2,
        "line": {"color": "var:muted", "dash": "dash", "width": 1.3}, "meta": meta_of(size.size, dense),
        "hovertemplate": dense.label + ": perplexity %{y:.1f}<extra></extra>",
    }]  # fmt: skip


def _paper_points(size: str, measure: str) -> Plot:
    names = list(paper()["sizes"].get(size, {}).get("variants", {}))
    found = [(name, paper_value(size, name, measure), paper_perplexity(size, name)) for name in names]
    known = [(name, x, y) for name, x, y in found if x is not None and y is not None]
    return {
        "type": "scatter", "mode": "markers", "x": [in_percent(x) for _, x, _ in known],
        "y": [round(y, 1) for _, _, y in known], "text": [name for name, _, _ in known], "visible": False,
        "marker": {"color": "var:ink", "symbol": "x-thin-open", "size": 9}, "meta": {"variant": PAPER},
        "hovertemplate": "the paper's %{text}<br>%{x:.1f} %, perplexity %{y:.1f}<extra></extra>",
    }  # fmt: skip


def line_of(size: str, each: VariantSummary, look: VariantLook) -> Plot:
    """Return the looks of a variant's line."""
    return {
        "type": "scatter", "line": {"color": look.colour, "dash": look.dash, "width": 1.6},
        "marker": {"color": look.colour, "symbol": look.symbol, "size": 7}, "meta": meta_of(size, each),
    }  # fmt: skip


def meta_of(size: str, each: VariantSummary) -> dict[str, str]:
    """Name the variant for the switches, and the section that a click opens."""
    return {"variant": each.name, "anchor": anchor_of(size, each.name)}


def bars(intervals: Sequence[Interval | None], factor: float) -> Plot:
    """Return error bars, in units of 1 / `factor`; invisible where there is no interval."""
    halves = [
        0.0 if each is None or each.high is None else round(factor * (each.high - each.mean), 4) for each in intervals
    ]
    return {"type": "data", "array": halves, "thickness": 1, "width": 3, "visible": any(halves)}


def _by_layer(each: VariantSummary, of: Callable[[RoutingMeasures], LayerMeasure]) -> list[float]:
    found = [of(result.read.routing).per_layer for result in each.results.values() if result.read.routing is not None]
    return [round(sum(values) / len(values), 4) for values in zip(*found, strict=True)]


def _mean(each: VariantSummary, measure: str) -> float:
    found = each.means[measure]
    assert found is not None
    return found.mean
