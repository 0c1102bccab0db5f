"""The plots of the page, as data for plotly.js; see `page/plots.py`."""

from __future__ import annotations

from typing import Any

from stickymoe.experiments.diagnosis.curves import Curve
from stickymoe.experiments.diagnosis.policies import kind_of, label_of
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.page.plots import DASHES, SERIES, SYMBOLS, axes, colour_of, in_percent, percents

ALL_LAYERS = "all layers"


def plots(found: Diagnosis) -> dict[str, dict[str, Any]]:
    """Return the plots by the id of the element that shows each: `data`, `layout`, `choices` where layers differ."""
    drawn = {"curves": _curves(found), "layers": _layers(found)}
    if found.warm_up is not None:
        drawn["start"] = _start(found)
    if found.remedies:
        drawn["remedies"] = _remedies(found)
    if found.stickiness is not None:
        drawn["sticky"] = _sticky(found)
    return drawn


def _curves(found: Diagnosis) -> dict[str, Any]:
    unit = "slots a layer" if found.budget.scope == "layer" else "slots in one pool"
    data, choices = [], {ALL_LAYERS: [percents(curve.hit_rates) for curve in found.curves]}
    for number, curve in enumerate(found.curves):
        data.append(_line(curve, number, unit, found))
    for layer, name in enumerate(found.facts.layer_names):
        choices[f"layer {name}"] = [percents([row[layer] for row in curve.per_layer]) for curve in found.curves]
    budget, knee = found.budget.slots, found.knee
    marks = [
        _upright(budget, "budget", "ink", "dash", budget < knee),
        _upright(knee, "knee", "muted", "dot", knee < budget),
    ]
    layout = axes(unit, "hit rate, %") | {
        "shapes": [shape for shape, _ in marks],
        "annotations": [_raised(note, number) for number, (_, note) in enumerate(marks)],
    }
    layout["yaxis"]["range"] = [0, 101]
    return {"data": data, "layout": layout, "choices": choices}


def _line(curve: Curve, number: int, unit: str, found: Diagnosis) -> dict[str, Any]:
    sizes = [found.budget.bytes_of(slots) for slots in curve.capacities]
    known = None not in sizes
    dense = len(curve.capacities) > 40
    bound = kind_of(curve.policy) == "bound"
    return {
        "type": "scatter",
        "mode": "lines" if dense else "lines+markers",
        "name": label_of(curve.policy) + (" (bound)" if bound else ""),
        "x": list(curve.capacities),
        "y": percents(curve.hit_rates),
        "customdata": [round(size / 2**30, 2) for size in sizes if size is not None] if known else None,
        "hovertemplate": "%{y:.1f} % at %{x} " + unit + (" (%{customdata} GiB)" if known else ""),
        "line": {"color": colour_of(number), "width": 2.5 if curve.policy in ("lru", "belady") else 1.5,
                 "dash": DASHES[number % SERIES]},
        "marker": {"symbol": SYMBOLS[number % SERIES], "size": 6, "color": colour_of(number)},
        "visible": True if curve.policy in ("lru", "belady") or number < 4 else "legendonly",
    }  # fmt: skip


def _layers(found: Diagnosis) -> dict[str, Any]:
    names = [each.name for each in found.layers]
    looks: list[tuple[str, list[float | None], dict[str, Any]]] = [
        ("LRU", [each.lru for each in found.layers], {"type": "bar", "marker": {"color": colour_of(0)}}),
        (
            "Belady (bound)",
            [each.belady for each in found.layers],
            {
                "type": "scatter",
                "mode": "markers",
                "marker": {"color": colour_of(1), "symbol": SYMBOLS[1], "size": 7},
            },
        ),
    ]
    data = [
        look
        | {
            "name": label,
            "x": names,
            "y": [None if rate is None else in_percent(rate) for rate in rates],
            "hovertemplate": "layer %{x}: %{y:.1f} %",
        }
        for label, rates, look in looks
    ]
    layout = axes("layer", "hit rate at the budget, %")
    layout["xaxis"] |= {"type": "category", "nticks": 16, "tickangle": 0}
    layout["yaxis"]["range"] = [0, 101]
    return {"data": data, "layout": layout | {"bargap": 0.25}}


def _start(found: Diagnosis) -> dict[str, Any]:
    warm = found.warm_up
    assert warm is not None
    names = [
        str(each.start) if each.stop == each.start + 1 else f"{each.start}–{each.stop - 1}" for each in warm.windows
    ]
    data = [
        {"type": "scatter", "mode": "lines+markers", "name": "hit rate of these tokens", "x": names,
         "y": [in_percent(each.hit_rate) for each in warm.windows], "hovertemplate": "tokens %{x}: %{y:.1f} %",
         "line": {"color": colour_of(1), "width": 2.5}, "marker": {"color": colour_of(1), "size": 7}},
        *(
            {"type": "scatter", "mode": "lines", "name": name, "x": names, "y": [in_percent(rate)] * len(names),
             "hovertemplate": name + ": %{y:.1f} %", "line": {"color": colour, "width": 1.5, "dash": dash}}
            for name, rate, colour, dash in (
                ("whole sequences", warm.cumulative, "var:muted", "dot"),
                ("second half", warm.steady, "var:ink", "dash"),
            )
        ),
    ]  # fmt: skip
    layout = axes("tokens since the cold start", "LRU hit rate, %")
    layout["xaxis"] |= {"type": "category", "tickangle": -35}
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": layout}


def _remedies(found: Diagnosis) -> dict[str, Any]:
    rows = list(reversed(found.remedies))
    data = []
    for label, bound in (("can be built", False), ("out of reach", True)):
        chosen = [each for each in rows if each.bound is bound]
        data.append({
            "type": "bar", "orientation": "h", "name": label, "y": [each.name for each in chosen],
            "x": [round(100 * each.gain, 2) for each in chosen], "hovertemplate": "%{y}: %{x:+.1f} points",
            "marker": {"color": colour_of(1) if not bound else "var:muted", "pattern": {"shape": "/" if bound else ""}},
        })  # fmt: skip
    layout = axes("points of hit rate above LRU", "")
    layout["yaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": [each.name for each in rows],
                        "showgrid": False}  # fmt: skip
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": "var:ink"}
    return {"data": [each for each in data if each["y"]], "layout": layout | {"barmode": "overlay", "tall": len(rows)}}


def _sticky(found: Diagnosis) -> dict[str, Any]:
    model = found.stickiness
    assert model is not None
    data: list[dict[str, Any]] = []
    for number, curve in enumerate(model.curves):
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": f"model, {curve.slots} slots a layer",
            "x": _rounded(model.overlaps), "y": percents(curve.hit_rates),
            "hovertemplate": "overlap %{x:.2f}: %{y:.1f} %",
            "line": {"color": colour_of(number + 1), "dash": DASHES[number], "width": 2},
            "marker": {"symbol": SYMBOLS[number], "size": 6, "color": colour_of(number + 1)},
        })  # fmt: skip
    data.append({
        "type": "scatter", "mode": "markers", "name": f"this trace, {model.slots} (measured)",
        "x": [round(model.measured_overlap, 4)], "y": [in_percent(model.measured)],
        "hovertemplate": "measured: overlap %{x:.2f}, %{y:.1f} %",
        "marker": {"symbol": "star", "size": 14, "color": "var:ink"},
    })  # fmt: skip
    layout = axes("overlap of neighbouring tokens (share of experts used again)", "LRU hit rate, %")
    layout["yaxis"]["rangemode"] = "tozero"
    layout["xaxis"] |= {"range": [0, 1]}
    return {"data": data, "layout": layout}


def _upright(x: float, name: str, colour: str, dash: str, left: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    line = {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1,
            "line": {"color": f"var:{colour}", "width": 1.2, "dash": dash}}  # fmt: skip
    note = {"x": x, "yref": "paper", "text": name, "showarrow": False,
            "xanchor": "right" if left else "left", "xshift": -3 if left else 3,
            "font": {"size": 11, "color": f"var:{colour}"}}  # fmt: skip
    return line, note


def _raised(note: dict[str, Any], number: int) -> dict[str, Any]:
    return note | {"y": 0.02 + 0.07 * number, "yanchor": "bottom"}


def _rounded(values: tuple[float, ...]) -> list[float]:
    return [round(value, 4) for value in values]
