"""Figures 1 and 2 of each size as pictures, for the Markdown and for print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stickymoe.core.files import whole_file
from stickymoe.experiments.comparison import BASELINE
from stickymoe.experiments.page.plots import SYMBOLS, framed
from stickymoe.experiments.pareto import non_dominated
from stickymoe.experiments.plot_labels import label_points
from stickymoe.experiments.svg import INK, MUTED, SERIES, house_style
from stickymoe.experiments.sweep_report.looks import VariantLook, looks_of
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary

MEASURES = {
    "hit_rate": ("Figure 1", "Hit rate, % (higher is better →)"),
    "switch_rate": ("Figure 2", "← Switch rate, % (lower is better)"),
}
_MARKERS = dict(zip(SYMBOLS, ("o", "s", "D", "^", "x", "P", "v", "*"), strict=True))
_FAINT = 0.35
_MOST_NAMED = 14


def save_pictures(folder: Path, sizes: Sequence[SizeSummary], note: str = "") -> list[tuple[str, Path]]:
    """Write the figures as PNG, `note` above each, and return title and path of each."""
    looks = looks_of(sizes)
    saved = []
    for size in sizes:
        for measure, (number, label) in MEASURES.items():
            path = folder / f"{number.lower().replace(' ', '-')}-{size.size}.png"
            with house_style():
                figure = Figure(figsize=(6.4, 4.4), layout="constrained")
                _draw(figure.subplots(), size, measure, label, looks)
                figure.suptitle(fill(note, 100), fontsize=8, color=MUTED)
                with whole_file(path) as temporary:
                    figure.savefig(temporary, format="png", dpi=160, metadata={"Software": None})
            word = "cache hit rate" if measure == "hit_rate" else "switch rate"
            saved.append((f"{number}: {word} against perplexity at {size.size}", path))
    return saved


def _draw(ax: Axes, size: SizeSummary, measure: str, label: str, looks: dict[str, VariantLook]) -> None:
    shown = [each for each in size.variants.values() if each.means[measure] is not None]
    points = [(100 * _mean(each, measure), _mean(each, "perplexity")) for each in shown]
    sign = 1 if measure == "hit_rate" else -1
    front = non_dominated([(sign * x, y) for x, y in points])
    path = [points[index] for index in front]
    ax.plot([x for x, _ in path], [y for _, y in path], color=MUTED, linewidth=1, zorder=2)
    for index, (each, (x, y)) in enumerate(zip(shown, points, strict=True)):
        look = looks[each.name]
        alpha = 1.0 if index in front else _FAINT
        ax.errorbar(
            x, y, xerr=_half(each, measure, 100), yerr=_half(each, "perplexity", 1), fmt=_MARKERS[look.symbol],
            color=SERIES[int(look.colour.rpartition("-")[2])], alpha=alpha, markersize=6, elinewidth=0.8,
            capsize=2, zorder=3,
        )  # fmt: skip
    ys = [y for _, y in points]
    if "dense" in size.variants:
        dense = size.variants["dense"]
        ys.append(_mean(dense, "perplexity"))
        ax.axhline(ys[-1], color=MUTED, linestyle=(0, (5, 4)), linewidth=1)
        ax.annotate(
            dense.label, (0, ys[-1]), xytext=(3, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=7, color=MUTED,
        )  # fmt: skip
    if points:
        ax.set_xlim(*framed([x for x, _ in points], 0.15, 1.0))
        ax.set_ylim(*framed(ys, 0.15, 1.0))  # not the bars: two seeds make them enormous
    ax.set_xlabel(label)
    ax.set_ylabel("Perplexity (← lower is better)")
    every = len(shown) <= _MOST_NAMED
    names = [each.label if every or index in front or each.name == BASELINE else "" for index, each in enumerate(shown)]
    label_points(ax, points, names, INK, path)


def _mean(each: VariantSummary, measure: str) -> float:
    found = each.means[measure]
    assert found is not None
    return found.mean


def _half(each: VariantSummary, measure: str, factor: float) -> float | None:
    found = each.means[measure]
    return None if found is None or found.high is None else factor * (found.high - found.mean)
