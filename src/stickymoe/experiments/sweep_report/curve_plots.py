"""Plots over steps and over the coefficient: how training went, and what more of the consistency loss does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.curves import LogValue, cross_entropy, mean_over_layers, series
from stickymoe.experiments.page.plots import DASHES, SYMBOLS, axes, colour_of
from stickymoe.experiments.sweep_report.plots import Looks, Plot, bars, line_of
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary
from stickymoe.experiments.variants import FAMILIES
from stickymoe.metrics.intervals import Interval

CURVES: dict[str, tuple[str, LogValue]] = {
    "cross_entropy": ("cross-entropy, nats a token", cross_entropy),
    "switch_rate": ("switch rate", mean_over_layers("switch_rate")),
    "gate_entropy": ("gate entropy, bits", mean_over_layers("gate_entropy_bits")),
    "gate_margin": ("gate margin", mean_over_layers("gate_margin")),
}
_Estimate = Callable[[VariantSummary], "Interval | None"]
SENSITIVITY: dict[str, tuple[str, _Estimate]] = {
    "switch_rate": ("switch rate", lambda each: each.means["switch_rate"]),
    "change": ("change of perplexity, %", lambda each: scaled(_against_itself(each), 100)),
    "share_kept": ("gain kept, %", lambda each: scaled(each.share_kept, 100)),
    "gate_entropy": (
        "gate entropy, share of its ceiling",
        lambda each: scaled(each.means["gate_entropy"], 1 / each.entropy_ceiling),
    ),
}


def training_plot(size: SizeSummary, name: str, looks: Looks) -> Plot:
    """Draw a measure over training steps: mean over seeds, a line a variant."""
    title, value = CURVES[name]
    data = []
    for each in size.variants.values():
        if each.is_dense and name != "cross_entropy":
            continue
        steps, values = _mean_curve(each, value)
        if steps:
            look = line_of(size.size, each, looks[each.name])
            hover = each.label + "<br>step %{x}: %{y:.3f}<extra></extra>"
            data.append(look | {"mode": "lines", "x": steps, "y": values, "hovertemplate": hover})
    return {"data": data, "layout": axes("step", title) | {"showlegend": False}}


def sensitivity_plot(sizes: Sequence[SizeSummary], name: str) -> Plot:
    """Draw a measure over the coefficients of the Soft variants, from Vanilla's 0 on, a line a size."""
    title, _ = SENSITIVITY[name]
    data = []
    for number, size in enumerate(sizes):
        known = _rungs(size, name)
        colour = colour_of(number + 1)
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": size.size, "x": [label for label, _ in known],
            "y": [round(each.mean, 4) for _, each in known], "error_y": bars([each for _, each in known], 1),
            "line": {"color": colour, "dash": DASHES[number], "width": 2},
            "marker": {"color": colour, "symbol": SYMBOLS[number], "size": 8},
            "hovertemplate": size.size + ", λ = %{x}: %{y:.3f}<extra></extra>",
        })  # fmt: skip
    layout: dict[str, Any] = axes("λ (0: Vanilla)", title)
    layout["xaxis"] |= {
        "type": "category",
        "categoryarray": [label for label, _ in _ladder()],
        "categoryorder": "array",
    }
    return {"data": data, "layout": layout}


def ladders(sizes: Sequence[SizeSummary]) -> list[str]:
    """Return the measures that are known at two coefficients of a size at least."""
    return [name for name in SENSITIVITY if any(len(_rungs(size, name)) > 1 for size in sizes)]


def has_curves(size: SizeSummary) -> bool:
    """Tell whether a run of the size kept its curves."""
    return any(result.log for each in size.variants.values() for result in each.results.values())


def scaled(found: Interval | None, factor: float) -> Interval | None:
    """Return an interval in another unit; `factor` is positive."""
    if found is None:
        return None
    low, high = (None if end is None else factor * end for end in (found.low, found.high))
    return Interval(factor * found.mean, low, high, found.n)


def _rungs(size: SizeSummary, name: str) -> list[tuple[str, Interval]]:
    _, of = SENSITIVITY[name]
    found = [(label, of(size.variants[variant])) for label, variant in _ladder() if variant in size.variants]
    return [(label, each) for label, each in found if each is not None]


def _against_itself(each: VariantSummary) -> Interval | None:
    return Interval(0.0, None, None, len(each.seeds)) if each.name == BASELINE else each.change


def _ladder() -> list[tuple[str, str]]:
    return [("0", BASELINE), *((variant.name.removeprefix("soft-"), variant.name) for variant in FAMILIES["soft"])]


def _mean_curve(each: VariantSummary, value: LogValue) -> tuple[list[float], list[float]]:
    """Return the mean over seeds at the steps that all of them have."""
    curves = [dict(zip(*series(result, value), strict=True)) for result in each.results.values()]
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    return shared, [round(sum(curve[step] for curve in curves) / len(curves), 4) for step in shared]
