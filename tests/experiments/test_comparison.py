"""Differences between runs: by hand, and None wherever nothing can be said."""

from __future__ import annotations

import math

import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.experiments.comparison import cache_columns, compare, moe_gain, share_kept


def test_share_kept_on_the_trial_by_hand(four_runs):
    vanilla, soft, _, dense = four_runs
    # ln(233.9 / 207.3) = 0.1207;  ln(233.9 / 224.0) = 0.0432;  0.0432 / 0.1207 = 0.358
    assert moe_gain(vanilla, dense) == pytest.approx(0.1207, abs=1e-4)
    assert share_kept(soft, vanilla, dense) == pytest.approx(0.358, abs=1e-3)
    assert share_kept(vanilla, vanilla, dense) == 1
    assert share_kept(dense, vanilla, dense) == 0


def test_a_share_of_no_gain_is_none(make_result):
    vanilla, dense = make_result("vanilla", 234.0), make_result("dense", 233.9, experts=2)
    assert moe_gain(vanilla, dense) < 0
    assert share_kept(make_result("soft", 230.0), vanilla, dense) is None


def test_rows_hold_ratios_against_vanilla(four_runs):
    vanilla, _, hard, dense = compare(four_runs)
    assert hard.perplexity_change == pytest.approx(220.0 / 207.3 - 1)
    assert hard.switch_ratio == pytest.approx(0.41 / 0.63)
    first = cache_columns([hard])[0]
    assert first.is_the_papers
    assert hard.caches[first].miss_ratio == pytest.approx(0.22 / 0.45)
    assert vanilla.perplexity_change is None
    assert vanilla.caches[first].miss_ratio is None
    assert (dense.routing, dense.switch_ratio, dense.caches) == (None, None, {})
    assert dense.share_kept == 0


def test_without_vanilla_nothing_is_a_change(four_runs):
    for row in compare(four_runs[1:]):
        assert (row.perplexity_change, row.share_kept, row.switch_ratio) == (None, None, None)
        assert all(cell.miss_ratio is None for cell in row.caches.values())


def test_hit_rates_counted_in_other_ways_are_never_compared(make_result, four_runs):
    metrics = make_result("odd", 220.0).metrics
    odd = make_result("odd", 220.0, cache=[metrics["cache"][0] | {"reset": "never"}])
    cell = next(iter(compare([four_runs[0], odd])[1].caches.values()))
    assert cell.miss_ratio is None


def test_ratios_against_zero_are_none(make_result):
    still = make_result("vanilla", 200.0, switch_rate=0.0, hit_rate=1.0, cache=[])
    row = compare([still, make_result("soft", 210.0)])[1]
    assert row.switch_ratio is None
    assert all(cell.miss_ratio is None for cell in row.caches.values())


@pytest.mark.parametrize(
    "change",
    [{"predicted_tokens": 73_411}, {"split": "validation"}, {"corpus": {"name": "sotu", "fingerprint": "other"}}],
)
def test_runs_on_other_tokens_are_refused(make_result, change):
    with pytest.raises(DataError, match=next(iter(change))):
        compare([make_result("vanilla", 200.0), make_result("soft", 210.0, **change)])


def test_two_runs_of_one_name_are_refused(make_result):
    with pytest.raises(SettingError, match="unique"):
        compare([make_result("soft", 200.0), make_result("soft", 210.0)])


def test_the_entropy_ceiling_is_log2_of_the_experts(make_result):
    assert compare([make_result("soft", 200.0, experts=16)])[0].entropy_ceiling_bits == math.log2(16)
