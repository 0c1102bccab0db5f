"""Names beside points keep clear of one another."""

from __future__ import annotations

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stickymoe.experiments.plot_labels import label_points


@pytest.mark.parametrize(
    "points",
    [
        [(50, 200), (50.2, 200.1), (50.4, 200.0), (50.1, 199.8)],
        [(50 + i, 200) for i in range(6)],
        [(50, 200)] * 3,
    ],
)
def test_names_of_crowded_points_do_not_overlap_and_stay_inside(points):
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    ax = figure.subplots()
    ax.plot([p[0] for p in points], [p[1] for p in points], "o")
    ax.margins(0.4)
    labels = label_points(ax, points, [f"Variant λ={i}" for i in range(len(points))], "#000000")
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [label.get_window_extent(renderer) for label in labels]
    assert not any(one.overlaps(two) for one, two in combinations(boxes, 2))
    assert all(figure.bbox.contains(*corner) for box in boxes for corner in (box.min, box.max))
    assert [label.get_text() for label in labels] == [f"Variant λ={i}" for i in range(len(points))]
