"""On which side of its point a name stands in a plot of the page, so that names cover neither points nor each other.

The page decides how large a plot is; this reckons with its size on paper; on a screen there is more room.
"""

from __future__ import annotations

from collections.abc import Sequence

from stickymoe.experiments.label_space import Box, Point, along, around, beside, cost

WIDTH, HEIGHT = 420.0, 280.0
ROOM = 0.1  # around the points, as a share of the plot
CHARACTER, LINE = 5.6, 14.0
RADIUS = 6.0
ROUNDS = 3
WORSE = 4  # to hide a point than to touch another name or the line
SIDES = {
    "middle right": (1, 0), "middle left": (-1, 0), "top center": (0, 1), "bottom center": (0, -1),
    "top right": (1, 1), "top left": (-1, 1), "bottom right": (1, -1), "bottom left": (-1, -1),
}  # fmt: skip


def label_sides(points: Sequence[Point], names: Sequence[str], path: Sequence[int] = ()) -> list[str]:
    """Return where each name stands, in plotly's words; the empty string where it has no room beside earlier names.

    Args:
        points: All points of the plot.
        names: The name of each; empty where none is written.
        path: Indices of the points that a line joins.
    """
    across = _spread([x for x, _ in points], WIDTH)
    at = list(zip(across, _spread([y for _, y in points], HEIGHT), strict=True))
    taken = WORSE * [around(point, RADIUS) for point in at] + along([at[index] for index in path])
    boxes = [
        [beside(point, CHARACTER * len(name), LINE, direction, RADIUS) for direction in SIDES.values()] if name else []
        for point, name in zip(at, names, strict=True)
    ]
    chosen: dict[int, Box] = {}
    for _ in range(ROUNDS):  # what was placed first makes way for what came later
        for index in filter(boxes.__getitem__, range(len(boxes))):
            others = [box for other, box in chosen.items() if other != index]
            chosen[index] = min(boxes[index], key=lambda box: cost(box, taken + others, (0.0, 0.0, WIDTH, HEIGHT)))
    sides, kept, found = list(SIDES), list[Box](), [""] * len(names)
    for index, box in sorted(chosen.items()):
        if not cost(box, kept, box):
            kept.append(box)
            found[index] = sides[boxes[index].index(box)]
    return found


def _spread(values: Sequence[float], size: float) -> list[float]:
    """Lay values over an axis of so many pixels."""
    low, high = min(values), max(values)
    scale = size * (1 - 2 * ROOM) / ((high - low) or 1)
    return [size * ROOM + (value - low) * scale for value in values]
