"""What room a name beside a point takes, and what it would cover there; in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


def beside(point: Point, width: float, height: float, direction: tuple[int, int], distance: float) -> Box:
    """Return what a name of this size covers `distance` away in a direction of -1, 0, 1 each way, one pixel wider."""
    right, up = direction
    left = point[0] + right * distance - width * (1 - right) / 2
    bottom = point[1] + up * distance - height * (1 - up) / 2
    return left - 1, bottom - 1, left + width + 1, bottom + height + 1


def cost(box: Box, taken: Sequence[Box], inside: Box) -> float:
    """Return the area that a place would cover of what is taken, plus what sticks out of the plot, in square pixels."""
    covered = sum(_shared(box, other) for other in taken)
    return covered + _shared(box, box) - _shared(box, inside)


def around(point: Point, radius: float) -> Box:
    """Return the square around a point."""
    return point[0] - radius, point[1] - radius, point[0] + radius, point[1] + radius


def along(path: Sequence[Point]) -> list[Box]:
    """Cover a drawn line with small boxes."""
    boxes = []
    for (x1, y1), (x2, y2) in pairwise(path):
        steps = int(max(abs(x2 - x1), abs(y2 - y1)) // 4) + 1
        for step in range(steps + 1):
            part = step / steps
            boxes.append(around((x1 + (x2 - x1) * part, y1 + (y2 - y1) * part), 1.0))
    return boxes


def _shared(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0
