"""Names beside the points of a plot, placed so that they cover neither one another nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from stickymoe.experiments.label_space import Box, Point, along, around, beside, cost

_POINT_RADIUS = 6.0
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_DISTANCES = (9, 18, 30, 44, 60)


def label_points(
    ax: Axes, points: Sequence[Point], names: Sequence[str], colour: str, path: Sequence[Point] = ()
) -> list[Annotation]:
    """Write each name at the nearest free place around its point; a thin line leads to a name that had to move away.

    Call it last: the axes' limits must stand. Places inside the axes and off `path`, a drawn line, are preferred.

    Returns:
        The annotations, in the order of the points.
    """
    figure: Any = ax.get_figure(root=True)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    inside, scale = _corners(ax.get_window_extent()), figure.dpi / 72
    at = _pixels(ax, points)
    taken = [around(point, _POINT_RADIUS * scale) for point in at] + along(_pixels(ax, path))
    places = [(distance, direction) for distance in _DISTANCES for direction in _DIRECTIONS]
    labels = []
    for point, pixel, name in zip(points, at, names, strict=True):
        label = ax.annotate(name, point, xytext=(0, 0), textcoords="offset points", color=colour)
        size = label.get_window_extent(canvas.get_renderer())
        label.remove()
        boxes = [beside(pixel, size.width, size.height, direction, distance * scale) for distance, direction in places]
        costs = [cost(box, taken, inside) for box in boxes]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        labels.append(_annotate(ax, point, name, colour, *places[best]))
    return labels


def _annotate(ax: Axes, point: Point, name: str, colour: str, distance: int, direction: tuple[int, int]) -> Annotation:
    right, up = direction
    is_far = distance > _DISTANCES[1]
    return ax.annotate(
        name,
        point,
        xytext=(right * distance, up * distance),
        textcoords="offset points",
        ha={1: "left", -1: "right", 0: "center"}[right],
        va={1: "bottom", -1: "top", 0: "center"}[up],
        color=colour,
        arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 4} if is_far else None,
    )


def _corners(extent: Any) -> Box:
    return float(extent.x0), float(extent.y0), float(extent.x1), float(extent.y1)


def _pixels(ax: Axes, points: Sequence[Point]) -> list[Point]:
    moved = [ax.transData.transform(point) for point in points]
    return [(float(x), float(y)) for x, y in moved]
