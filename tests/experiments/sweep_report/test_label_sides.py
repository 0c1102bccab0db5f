"""Names in the page's plots keep clear of points and of one another."""

from itertools import combinations

import pytest

from stickymoe.experiments.label_space import around, beside, cost
from stickymoe.experiments.sweep_report import label_sides as sides


def boxes(points, names, path=()):
    found = sides.label_sides(points, names, path)
    assert len(found) == len(points)
    across, up = sides._spread([x for x, _ in points], sides.WIDTH), sides._spread([y for _, y in points], sides.HEIGHT)
    at = list(zip(across, up, strict=True))
    return at, [
        beside(point, sides.CHARACTER * len(name), sides.LINE, sides.SIDES[side], sides.RADIUS)
        for point, name, side in zip(at, names, found, strict=True)
        if side
    ]


@pytest.mark.parametrize(
    "points",
    [
        [(30, 133), (47.3, 134.8), (49.3, 136.5), (53.8, 139), (55.2, 159.3), (87.9, 168.9)],
        [(0, 0), (1, 0.05), (2, 0)],
        [(5, 5)],
    ],
)
def test_no_name_covers_a_point_or_another_name_or_leaves_the_plot(points):
    at, placed = boxes(points, ["Soft λ=0.05 + Hysteresis"] * len(points), range(len(points)))
    assert not any(cost(one, [two], one) for one, two in combinations(placed, 2))
    # what a label's own point takes is beside it, but for the pixel of air around the name
    assert all(cost(box, [around(point, sides.RADIUS - 1) for point in at], box) == 0 for box in placed)
    assert all(cost(box, [], (0, 0, sides.WIDTH, sides.HEIGHT)) == 0 for box in placed)


def test_points_without_a_name_are_kept_clear_but_take_no_place():
    at, placed = boxes([(0, 0), (1, 0), (2, 0)], ["", "a name of some length", ""])
    assert len(placed) == 1
    assert cost(placed[0], [around(point, sides.RADIUS - 1) for point in at], placed[0]) == 0


def test_in_a_crowd_the_first_names_stand_and_the_rest_is_left_out():
    crowd = [(10 + 0.1 * number, 20.0) for number in range(30)] + [(0.0, 0.0), (100.0, 100.0)]
    names = ["Vanilla", *["Soft λ=0.05 + Hysteresis"] * 29, "", ""]
    _, placed = boxes(crowd, names)
    found = sides.label_sides(crowd, names)
    assert found[0]
    assert 1 < len(placed) < 30
    assert not any(cost(one, [two], one) for one, two in combinations(placed, 2))
