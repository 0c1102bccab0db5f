"""Hit rate against perplexity: which runs no other beats in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from stickymoe.experiments.comparison import Row
from stickymoe.experiments.looks import DENSE, Look
from stickymoe.experiments.metrics_file import CacheSemantics
from stickymoe.experiments.plot_labels import label_points
from stickymoe.experiments.svg import INK, MUTED, PAPER

HOW_TO_READ = (
    "Better is to the right and down. The line joins the runs that no other beats in both; hollow points are beaten. "
    "Dashed: the dense control, which has no experts to cache."
)


def non_dominated(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the (hit rate, perplexity) points that no other point beats, by rising hit rate.

    A point is beaten by one that hits at least as often at a perplexity at most as high, and is better in one.
    """

    def beaten(index: int) -> bool:
        hit, perplexity = points[index]
        return any(h >= hit and p <= perplexity and (h, p) != (hit, perplexity) for h, p in points)

    return sorted((i for i in range(len(points)) if not beaten(i)), key=lambda i: points[i])


def draw_pareto(ax: Axes, rows: Sequence[Row], semantics: CacheSemantics, looks: Mapping[str, Look]) -> None:
    """Draw every run that was counted by `semantics` as a named point, and dense controls as lines across."""
    shown = [row for row in rows if semantics in row.caches]
    points = [(100.0 * row.caches[semantics].hit_rate, row.perplexity) for row in shown]
    front = non_dominated(points)
    path = [points[index] for index in front]
    ax.plot([x for x, _ in path], [y for _, y in path], color=MUTED, linewidth=1, zorder=2)
    for index, (row, (x, y)) in enumerate(zip(shown, points, strict=True)):
        look, is_beaten = looks[row.name], index not in front
        face, alpha = (PAPER, 0.55) if is_beaten else (look.colour, 1.0)
        ax.plot(x, y, look.marker, color=look.colour, markerfacecolor=face, alpha=alpha, markersize=7, zorder=3)
    for row in rows:
        if row.is_dense:
            _draw_reference(ax, row)
    ax.margins(x=0.18, y=0.16)
    ax.set_xlabel("Hit rate, % (higher is better →)")
    ax.set_ylabel("Perplexity (← lower is better)")
    label_points(ax, points, [row.label for row in shown], INK, path)


def _draw_reference(ax: Axes, row: Row) -> None:
    ax.axhline(row.perplexity, color=DENSE.colour, linestyle=DENSE.dashes, linewidth=1)
    ax.annotate(
        row.label,
        (0.0, row.perplexity),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        color=MUTED,
        fontsize=8.5,
    )
