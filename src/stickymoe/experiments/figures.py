"""The report's figures, put together: hit rate against perplexity, switch rate by layer, training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from stickymoe.core.files import whole_file
from stickymoe.experiments.comparison import Row, cache_columns, compare
from stickymoe.experiments.curves import MOST_POINTS, cross_entropy, draw_curves, series
from stickymoe.experiments.looks import Look, looks_of
from stickymoe.experiments.metrics_file import CacheSemantics
from stickymoe.experiments.pareto import HOW_TO_READ, draw_pareto
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.svg import house_style

_PARETO_PLOTS = 2


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its file and id name, its heading and a caption that says how to read it."""

    name: str
    title: str
    caption: str
    figure: Figure


def draw_figures(results: Sequence[RunResult]) -> list[DrawnFigure]:
    """Draw every figure for which the runs hold numbers.

    Pareto plots (one for each of the first two counting rules) need at least two routed runs, switch rates a routed
    run, curves a training log.
    """
    rows = compare(results)
    routed = [row for row in rows if row.routing is not None]
    looks = looks_of(rows)
    drawn = []
    with house_style():
        if len(routed) > 1:
            drawn += [_pareto_figure(rows, semantics, looks) for semantics in cache_columns(routed)[:_PARETO_PLOTS]]
        if routed:
            drawn.append(_layer_figure(routed, looks))
        if any(series(result, cross_entropy)[0] for result in results):
            drawn.append(_curve_figure(rows, looks))
    return drawn


def save_figures(folder: Path, results: Sequence[RunResult]) -> list[Path]:
    """Write every figure as `<name>.png` into `folder` and return the paths."""
    paths = []
    for drawn in draw_figures(results):
        path = folder / f"{drawn.name}.png"
        with whole_file(path) as temporary, house_style():
            drawn.figure.savefig(temporary, format="png", dpi=200, metadata={"Software": None})
        paths.append(path)
    return paths


def _figure() -> Figure:
    return Figure(figsize=(5.2, 3.6), layout="constrained")


def _pareto_figure(rows: Sequence[Row], semantics: CacheSemantics, looks: Mapping[str, Look]) -> DrawnFigure:
    figure = _figure()
    draw_pareto(figure.subplots(), rows, semantics, looks)
    rule = "-".join((semantics.policy, semantics.scope, semantics.replay, semantics.reset))
    name = f"pareto-{semantics.accesses}-{semantics.capacity}-{rule}"
    caption = f"{HOW_TO_READ} Counted as: {semantics.spelled_out}."
    return DrawnFigure(name, f"Hits against quality: {semantics.short}", caption, figure)


def _layer_figure(routed: Sequence[Row], looks: Mapping[str, Look]) -> DrawnFigure:
    figure = _figure()
    ax = figure.subplots()
    highest, layers = 0.0, 0
    for index, row in enumerate(routed):
        assert row.routing is not None
        rates, look = row.routing.switch_rate.per_layer, looks[row.name]
        shift = 0.09 * (index - (len(routed) - 1) / 2)
        at = [layer + shift for layer in range(len(rates))]
        ax.plot(at, rates, color=look.colour, linewidth=1, alpha=0.45)
        ax.plot(at, rates, look.marker, color=look.colour, markersize=6, label=row.label)
        highest, layers = max(highest, *rates), max(layers, len(rates))
    ax.set_xticks(range(layers), [str(layer) for layer in range(layers)])
    ax.set_xlim(-0.5, layers - 0.5)
    ax.set_ylim(0, 1.1 * highest or 1.0)
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("Layer (0 is nearest to the input)")
    ax.set_ylabel("Switch rate (share of token pairs)")
    figure.legend(loc="outside lower center", ncols=min(3, len(routed)), fontsize=8.5)
    caption = "How often the top-1 expert differs between neighbouring tokens. 0: never, 1: at every token."
    return DrawnFigure("switch-rate-by-layer", "Switch rate by layer", caption, figure)


def _curve_figure(rows: Sequence[Row], looks: Mapping[str, Look]) -> DrawnFigure:
    figure = _figure()
    draw_curves(list(figure.subplots(1, 2)), rows, looks)
    figure.legend(loc="outside lower center", ncols=min(3, len(rows)), fontsize=8.5)
    caption = (
        "On the training batches: cross-entropy alone, without the added loss terms. "
        f"Where a log has more than {MOST_POINTS} rows, neighbours are averaged."
    )
    return DrawnFigure("training-curves", "During training", caption, figure)
