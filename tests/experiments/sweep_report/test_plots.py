"""Plots: a trace a variant that can be switched off, means over seeds, beaten ones faint, the dense control across."""

import json

import pytest

from stickymoe.experiments.sweep_report.curve_plots import SENSITIVITY, ladders, sensitivity_plot, training_plot
from stickymoe.experiments.sweep_report.looks import looks_of
from stickymoe.experiments.sweep_report.plots import BEATEN, layers_plot, load_plot, pareto_plot


def traces(plot, variant):
    return [trace for trace in plot["data"] if trace.get("meta", {}).get("variant") == variant]


def pareto(size, measure="hit_rate"):
    return pareto_plot(size, measure, looks_of([size]))


def test_the_line_joins_what_no_other_beats_and_the_rest_is_faint(summary):
    size = summary()
    front = pareto(size)["data"][0]
    assert front["y"] == sorted(front["y"])
    assert front["x"] == sorted(front["x"])
    for name, each in size.variants.items():
        if each.is_dense:
            continue
        point = traces(pareto(size), name)[0]
        beaten = any(
            other.means["hit_rate"].mean >= each.means["hit_rate"].mean
            and other.means["perplexity"].mean < each.means["perplexity"].mean
            for other in size.variants.values()
            if not other.is_dense
        )
        assert point["opacity"] == (BEATEN if beaten else 1), name


def test_a_lower_switch_rate_is_better(summary):
    front = pareto(summary(), "switch_rate")["data"][0]
    pairs = sorted(zip(front["x"], front["y"], strict=True))
    assert [y for _, y in pairs] == sorted(front["y"], reverse=True)


def test_every_seed_is_a_faint_point_that_names_its_run(summary):
    mean, seeds = traces(pareto(summary()), "soft-0.1")
    assert seeds["text"] == ["small/42/soft-0.1", "small/43/soft-0.1", "small/44/soft-0.1"]
    assert seeds["customdata"][1] == "run-small-soft-0.1-43"
    assert mean["meta"]["anchor"] == "run-small-soft-0.1"
    assert mean["x"][0] == pytest.approx(sum(seeds["x"]) / 3, abs=0.02)


def test_one_seed_has_no_bars_and_no_second_point(summary):
    (point,) = traces(pareto(summary(seeds=(42,))), "soft-0.1")
    assert point["error_x"]["visible"] is False
    assert "one seed" in point["hovertemplate"]


def test_the_bars_of_two_seeds_do_not_squeeze_the_points(summary):
    size = summary(seeds=(42, 43))
    plot = pareto(size)
    low, high = plot["layout"]["yaxis"]["range"]
    ys = [y for trace in plot["data"] for y in trace["y"]]
    assert low < min(ys) < max(ys) < high
    assert high - low <= 1.3 * (max(ys) - min(ys))


def test_the_dense_control_is_a_line_across(summary):
    size = summary()
    (line,) = traces(pareto(size), "dense")
    assert line["mode"] == "lines"
    assert line["y"] == [round(size.variants["dense"].means["perplexity"].mean, 2)] * 2


def test_the_papers_points_wait_to_be_switched_on(summary):
    (points,) = traces(pareto(summary()), "the paper")
    assert points["visible"] is False
    assert (points["x"][0], points["y"][0]) == (54.0, 245.3)
    (nothing,) = traces(pareto(summary(size="demo")), "the paper")
    assert nothing["x"] == []


def test_the_papers_points_frame_the_plot_only_when_they_are_shown(summary):
    plot = pareto(summary())
    (points,) = traces(plot, "the paper")
    ours = [y for trace in plot["data"] if trace is not points for y in trace["y"]]
    low, high = plot["layout"]["yaxis"]["range"]
    assert high - low <= 1.3 * (max(ours) - min(ours))
    for axis, letter in (("xaxis", "x"), ("yaxis", "y")):
        low, high = points["meta"]["frame"][axis]
        assert low < min(points[letter])
        assert max(points[letter]) < high
        assert low <= plot["layout"][axis]["range"][0]
        assert high >= plot["layout"][axis]["range"][1]


def test_layers_can_be_looked_at_by_every_measure(summary):
    size = summary()
    plot = layers_plot(size, looks_of([size]))
    assert len(plot["choices"]["overlap"]) == len(plot["data"]) == len(size.variants) - 1
    assert plot["data"][0]["y"] == plot["choices"]["switch rate"][0]


def test_load_has_a_line_for_each_routed_variant(summary):
    size = summary()
    plot = load_plot(size, "load_cv", "title", looks_of([size]))
    assert {trace["y"][0] for trace in plot["data"]} == {
        each.label for each in size.variants.values() if not each.is_dense
    }


def test_training_curves_are_means_at_the_steps_that_all_seeds_have(summary):
    size = summary()
    plot = training_plot(size, "cross_entropy", looks_of([size]))
    (line,) = traces(plot, "soft-0.1")
    logs = [result.log for result in size.variants["soft-0.1"].results.values()]
    assert line["x"] == [row["step"] for row in logs[0]]
    assert line["y"][0] == pytest.approx(sum(log[0]["cross_entropy"] for log in logs) / 3, abs=1e-4)
    assert traces(training_plot(size, "switch_rate", looks_of([size])), "dense") == []
    assert traces(plot, "dense")


def test_the_ladder_begins_with_vanilla(summary):
    plot = sensitivity_plot([summary(), summary(size="medium")], "change")
    assert [trace["name"] for trace in plot["data"]] == ["small", "medium"]
    assert plot["data"][0]["x"] == ["0", "0.01", "0.05", "0.1", "0.2", "0.5"]
    assert plot["data"][0]["y"][0] == 0


def test_a_ladder_of_one_rung_is_none(summary, invented):
    assert ladders([summary(without=[name for name in invented.SHAPE if name != "vanilla"])]) == []
    assert ladders([summary()]) == list(SENSITIVITY)


def test_a_share_of_no_gain_makes_no_plot(summary):
    assert "share_kept" not in ladders([summary({"dense": {"change": 1.0}})])


def test_all_plots_are_plain_json(summary):
    size = summary({"dense": {"change": 1.0}})
    looks = looks_of([size])
    plots = [pareto(size), layers_plot(size, looks), load_plot(size, "busiest", "", looks)]
    plots += [sensitivity_plot([size], name) for name in SENSITIVITY]
    json.dumps(plots, allow_nan=False)


def test_vanilla_is_neutral_and_no_two_variants_look_alike(summary):
    looks = looks_of([summary()])
    assert looks["vanilla"].colour == "var:series-0"
    assert len({(look.colour, look.symbol) for look in looks.values()}) == len(looks)
