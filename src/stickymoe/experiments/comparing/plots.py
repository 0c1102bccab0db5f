"""The plots of the page, as data for plotly.js; see `page/plots.py`."""

from __future__ import annotations

from typing import Any

from stickymoe.experiments.comparing.record import Comparison, Line
from stickymoe.experiments.diagnosis.curves import Curve
from stickymoe.experiments.page.plots import DASHES, SYMBOLS, axes, colour_of, in_percent, percents

LETTERS = ("A", "B")
BY_LAYER = {"expert_overlap": "overlap", "pass_busiest": "busiest"}


def plots(found: Comparison) -> dict[str, dict[str, Any]]:
    """Return the plots by the id of the element that shows each."""
    drawn = {"curves": _curves(found)}
    for name, place in BY_LAYER.items():
        if found.has(name):
            drawn[place] = _layers(found, found.find(name))
    if len(found.documents) > 1:
        drawn["documents"] = _documents(found)
    return drawn


def _curves(found: Comparison) -> dict[str, Any]:
    data = []
    for number, (side, curves) in enumerate(zip((found.first, found.second), found.curves, strict=True)):
        for curve in curves:
            data.append(_curve(curve, number, side.num_experts))
    layout = axes("experts resident, % of a layer's", "hit rate, %")
    layout["yaxis"]["range"] = [0, 101]
    layout["xaxis"]["range"] = [0, 101]
    return {"data": data, "layout": layout}


def _curve(curve: Curve, number: int, experts: int) -> dict[str, Any]:
    bound = curve.policy == "belady"
    name = f"{LETTERS[number]}, {'Belady (bound)' if bound else 'LRU'}"
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.capacities) <= 16 else "lines",
        "name": name,
        "x": [round(100 * slots / experts, 3) for slots in curve.capacities],
        "y": percents(curve.hit_rates),
        "customdata": list(curve.capacities),
        "hovertemplate": "%{y:.1f} % with %{customdata} slots a layer",
        "line": {"color": colour_of(number), "width": 1.5 if bound else 2.5, "dash": DASHES[1 if bound else 0]},
        "marker": {"symbol": SYMBOLS[number], "size": 6, "color": colour_of(number)},
    }


def _layers(found: Comparison, line: Line) -> dict[str, Any]:
    share = line.unit == "share"
    data = []
    for number, (side, values) in enumerate(zip((found.first, found.second), line.layers, strict=True)):
        shown = [None if each is None else in_percent(each) if share else round(each, 4) for each in values]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": LETTERS[number],
            "x": list(side.layer_names), "y": shown,
            "hovertemplate": "layer %{x}: %{y:.1f} %" if share else "layer %{x}: %{y:.2f}×",
            "line": {"color": colour_of(number), "width": 1.5, "dash": DASHES[number]},
            "marker": {"symbol": SYMBOLS[number], "size": 7, "color": colour_of(number)},
        })  # fmt: skip
    layout = axes("layer", f"{line.label}, %" if share else f"{line.label}, × the mean")
    layout["xaxis"] |= {"type": "category", "nticks": 16, "tickangle": 0}
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def _documents(found: Comparison) -> dict[str, Any]:
    rows = found.documents
    data = [{
        "type": "scatter", "mode": "markers", "name": "documents", "text": [each.name for each in rows],
        "x": [round(each.first, 4) for each in rows], "y": [round(100 * each.change, 3) for each in rows],
        "hovertemplate": "%{text}: %{x:.2f} under A, %{y:+.1f} % under B",
        "marker": {"color": colour_of(1), "symbol": SYMBOLS[1], "size": 7, "opacity": 0.75},
    }]  # fmt: skip
    layout = axes("perplexity under A", "change under B, %") | {"showlegend": False}
    layout["yaxis"] |= {"zeroline": True, "zerolinecolor": "var:ink", "rangemode": "tozero"}
    return {"data": data, "layout": layout}
