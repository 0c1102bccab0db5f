"""Figures: the right points are joined, the SVG stands inside a page, the bytes never differ."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.experiments.comparison import compare
from stickymoe.experiments.curves import MOST_POINTS, cross_entropy, mean_switch_rate, series
from stickymoe.experiments.figures import draw_figures, save_figures
from stickymoe.experiments.looks import looks_of
from stickymoe.experiments.pareto import non_dominated
from stickymoe.experiments.svg import inline_svg


def test_non_dominated_points_by_hand():
    #         best quality  beaten by both  better on both sides
    points = [(50.0, 200.0), (45.0, 210.0), (70.0, 220.0), (60.0, 225.0), (70.0, 230.0)]
    assert non_dominated(points) == [0, 2]


def test_equal_points_both_stay():
    assert non_dominated([(50.0, 200.0), (50.0, 200.0)]) == [0, 1]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_along_the_line_more_hits_always_cost_perplexity(points):
    front = [points[i] for i in non_dominated(points)]
    assert front
    distinct = list(dict.fromkeys(front))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(distinct))


def test_a_comparison_gets_all_figures_and_a_single_run_those_that_make_sense(four_runs, make_result):
    assert [drawn.name for drawn in draw_figures(four_runs)] == [
        "pareto-top1-2-lru-layer-sequential-sequence",
        "pareto-topk-2-lru-layer-atomic-sequence",
        "switch-rate-by-layer",
        "training-curves",
    ]
    assert [drawn.name for drawn in draw_figures([make_result("soft", 200.0, log=False)])] == ["switch-rate-by-layer"]
    assert draw_figures([make_result("dense", 200.0, experts=2, log=False)]) == []


def test_the_pareto_plot_has_every_routed_run_by_name_and_the_dense_control_as_a_line(four_runs):
    figure = draw_figures(four_runs)[0].figure
    ax = figure.axes[0]
    assert {text.get_text() for text in ax.texts} == {result.label for result in four_runs}
    levels = [line.get_ydata() for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    assert [list(level) for level in levels] == [[233.9, 233.9]]
    joined = next(line for line in ax.lines if line.get_marker() in ("None", "") and len(line.get_xdata()) == 2)
    assert list(joined.get_xdata()) == pytest.approx([55.0, 78.0])


def test_switch_rates_by_layer_leave_the_dense_control_out(four_runs):
    figure = next(drawn.figure for drawn in draw_figures(four_runs) if drawn.name == "switch-rate-by-layer")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["Vanilla", "Soft (λ=0.5)", "Soft-Hard (λ=0.1, W=4)"]


def test_runs_are_told_apart_by_more_than_colour(four_runs):
    looks = looks_of(compare(four_runs)).values()
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 4


def test_the_svg_has_unique_ids_no_outside_reference_and_follows_the_theme(four_runs):
    texts = [inline_svg(drawn.figure, drawn.name) for drawn in draw_figures(four_runs)]
    ids = re.findall(r'\bid="([^"]+)"', "".join(texts))
    assert len(ids) == len(set(ids))
    for text in texts:
        assert text.startswith("<svg viewBox=")
        referenced = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
        assert {one or two for one, two in referenced} <= set(ids)
        assert set(re.findall(r"https?://[^\"]+", text)) == set()
        assert re.findall(r"#[0-9a-f]{6}\b", text) == []
        assert "var(--ink)" in text


def test_labels_with_markup_or_dollars_stay_text(make_result):
    runs = [make_result("vanilla", 200.0), make_result("soft", 210.0, label="<script>$x_1$ \\frac</script>")]
    for drawn in draw_figures(runs):
        assert "<script" not in inline_svg(drawn.figure, drawn.name)


def test_the_same_results_give_the_same_bytes(four_runs, tmp_path):
    two = four_runs[:2]
    once = [inline_svg(drawn.figure, drawn.name) for drawn in draw_figures(two)]
    assert once == [inline_svg(drawn.figure, drawn.name) for drawn in draw_figures(two)]
    one = [path.read_bytes() for path in save_figures(tmp_path / "a", four_runs[:1])]
    assert one == [path.read_bytes() for path in save_figures(tmp_path / "b", four_runs[:1])]
    assert all(image.startswith(b"\x89PNG") for image in one)


def test_a_layer_without_a_pair_does_not_count_in_the_mean_switch_rate():
    assert mean_switch_rate({"switch_rate": [0.5, None, 0.25]}) == 0.375
    assert mean_switch_rate({"switch_rate": [None, None]}) is None


def test_long_logs_are_thinned_to_means_of_neighbours(make_result):
    result = make_result("soft", 200.0)
    result.log[:] = [{"step": step, "cross_entropy": 2.0 * step} for step in range(1, 301)]
    steps, values = series(result, cross_entropy)
    assert len(steps) == MOST_POINTS
    assert (steps[0], values[0]) == (1.5, 3.0)
    assert series(result, mean_switch_rate) == ([], [])
