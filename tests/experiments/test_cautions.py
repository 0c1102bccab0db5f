"""Warnings appear where they must, and only there."""

from __future__ import annotations

import pytest

from stickymoe.experiments.cautions import cautions
from stickymoe.experiments.comparison import compare


def cautions_of(*results):
    return " ".join(cautions(compare(results)))


def with_layers(make_result, **measures):
    metrics = make_result("soft", 220.0).metrics
    changed = {name: {"mean": sum(v) / len(v), "per_layer": v} for name, v in measures.items()}
    return make_result("soft", 220.0, routing=metrics["routing"] | changed)


def test_healthy_runs_are_warned_only_of_their_single_seed(four_runs):
    assert [text[:12] for text in cautions(compare(four_runs))] == ["One seed (0)"]


def test_flat_gates_are_named_by_layer_with_entropy_and_margin(make_result):
    flat = with_layers(make_result, gate_entropy_bits=[1.2, 1.98, 1.95, 1.2], gate_margin=[0.3, 0.04, 0.05, 0.3])
    assert "Soft: the gates of layers 1, 2 are flat rather than sticky (layer 1: entropy 1.98 of 2.00 bits, " in (
        cautions_of(flat)
    )
    assert "margin 0.040" in cautions_of(flat)


@pytest.mark.parametrize(("entropy", "margin"), [(1.89, 0.04), (1.98, 0.11)])
def test_gates_that_are_only_undecided_or_only_close_are_not_called_flat(make_result, entropy, margin):
    assert "flat" not in cautions_of(
        with_layers(make_result, gate_entropy_bits=[entropy] * 4, gate_margin=[margin] * 4)
    )


def test_one_collapsed_layer_is_found_although_the_mean_is_fine(make_result):
    said = cautions_of(with_layers(make_result, utilisation_entropy_bits=[2.0, 2.0, 1.0, 2.0]))
    assert "Soft: layer 2 use" in said
    assert "as if 2.0 of 4" in said


def test_gains_at_or_near_zero_are_called_so(make_result):
    dense = make_result("dense", 233.9, experts=2)
    assert "proves nothing" in cautions_of(make_result("vanilla", 234.5), dense)
    assert "gain only 0.017 nats" in cautions_of(make_result("vanilla", 230.0), dense)
    assert "No dense control" in cautions_of(make_result("vanilla", 230.0), make_result("soft", 231.0))


def test_unequal_settings_are_called_out(make_result):
    train = {"steps": 300, "seconds": 70.0, "tokens_per_step": 2048}
    said = cautions_of(make_result("vanilla", 207.3), make_result("soft", 220.0, train=train, commit="other", seed=1))
    assert "same number of tokens" in said
    assert "different commits" in said
    assert "One seed" not in said
