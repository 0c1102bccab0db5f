"""A size in numbers: shares of a gain that is clear, flat gates, what is paired with what."""

import math

import pytest


def test_the_share_kept_is_that_of_sums_over_seeds_by_hand(summary):
    found = summary()
    runs = {name: found.variants[name].results for name in ("vanilla", "dense", "soft-0.5")}
    entropies = {name: [each.read.cross_entropy for each in results.values()] for name, results in runs.items()}
    kept = sum(entropies["dense"]) - sum(entropies["soft-0.5"])
    gain = sum(entropies["dense"]) - sum(entropies["vanilla"])
    assert found.variants["soft-0.5"].share_kept.mean == pytest.approx(kept / gain)
    assert found.gain.mean == pytest.approx(gain / 3)
    assert found.variants["vanilla"].share_kept.mean == pytest.approx(1)
    assert found.variants["dense"].share_kept.mean == pytest.approx(0)


@pytest.mark.parametrize("dense", [{"change": 1.0}, {"change": 0.9}])
def test_of_a_gain_that_is_not_clear_of_zero_nothing_is_kept(summary, dense):
    found = summary({"dense": dense})
    assert not found.gain_is_clear
    assert all(each.share_kept is None for each in found.variants.values())


def test_one_seed_needs_a_gain_above_the_allowance(summary, invented):
    step = invented.SEED_NOISE
    assert summary({"dense": {"change": math.exp(0.01 + 3 * step)}}, seeds=(42,)).gain_is_clear
    assert not summary({"dense": {"change": math.exp(0.01 - 3 * step)}}, seeds=(42,)).gain_is_clear


def test_without_a_dense_control_there_is_no_share(summary):
    found = summary(without=("dense",))
    assert found.gain is None
    assert found.variants["soft-0.5"].share_kept is None
    assert found.variants["soft-0.5"].change is not None


def test_gates_are_flat_by_entropy_and_margin_together(summary):
    found = summary({"soft-0.1": {"entropy": 1.99, "margin": 0.2}, "soft-0.2": {"entropy": 1.5, "margin": 0.01}})
    flat = [name for name, each in found.variants.items() if each.flat_layers()]
    assert flat == ["soft-0.5"]
    assert found.variants["soft-0.5"].flat_layers() == [0, 1, 2, 3]


def test_a_dense_control_routes_nothing(summary):
    dense = summary().variants["dense"]
    assert dense.means["switch_rate"] is None
    assert dense.reduction is None
    assert dense.flat_layers() == []


def test_vanilla_is_not_compared_with_itself(summary):
    vanilla = summary().variants["vanilla"]
    assert (vanilla.change, vanilla.reduction, vanilla.miss_ratio) == (None, None, None)
