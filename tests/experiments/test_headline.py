"""One sentence that stays right where a method loses, proves nothing, or stands alone."""

from __future__ import annotations

import pytest

from stickymoe.core.errors import SettingError
from stickymoe.experiments.headline import headline


def test_the_trial_in_one_sentence(four_runs):
    assert headline(four_runs) == (
        "On 73,412 held-out tokens of sotu, Soft-Hard (λ=0.1, W=4) switches experts 35 % less often than Vanilla "
        "and misses a 2-slot LRU cache (top-1, per layer) 2.0× less often, at +6.1 % perplexity, "
        "keeping 51 % of what the experts gain over the dense control (0.121 nats)."
    )


def test_a_method_that_loses_is_said_to_lose(make_result):
    runs = [
        make_result("vanilla", 207.3, switch_rate=0.60, hit_rate=0.60),
        make_result("soft", 205.2, switch_rate=0.66, hit_rate=0.52),
        make_result("dense", 233.9, experts=2),
    ]
    said = headline(runs)
    assert "switches experts 10 % more often than Vanilla" in said
    assert "20 % more often, at \N{MINUS SIGN}1.0 % perplexity" in said
    assert "keeping all of what the experts gain over the dense control (0.121 nats) and 8 % on top" in said


def test_worse_than_the_dense_control_keeps_nothing(make_result):
    runs = [make_result("vanilla", 207.3), make_result("soft", 240.0), make_result("dense", 233.9, experts=2)]
    assert "keeping nothing of what the experts gain" in headline(runs)


def test_equal_numbers_are_neither_less_nor_more(make_result):
    said = headline([make_result("vanilla", 207.3), make_result("soft", 207.31)])
    assert "switches experts as often as Vanilla" in said
    assert "(top-1, per layer) as often, at the same perplexity" in said


def test_where_experts_gain_nothing_locality_proves_nothing(make_result):
    runs = [make_result("vanilla", 234.0), make_result("soft", 235.0), make_result("dense", 233.9, experts=2)]
    said = headline(runs)
    assert "gain nothing over the dense control (\N{MINUS SIGN}0.000 nats)" in said or "(0.000 nats)" in said
    assert "locality is free here and proves nothing" in said
    assert "keeping" not in said


def test_without_a_dense_control_the_worth_of_the_experts_is_unknown(four_runs):
    assert "without a dense control it is unknown" in headline(four_runs[:3])


def test_one_run_alone_is_described_not_compared(make_result):
    said = headline([make_result("soft", 224.0)])
    assert "Soft has perplexity 224.0, switches experts at 60.0 % of token pairs" in said
    assert "at 60.0 % of lookups; one run alone" in said
    assert "Vanilla" not in said


def test_variants_without_vanilla_are_described(four_runs):
    assert "no Vanilla run to compare it with" in headline(four_runs[1:])


def test_the_dense_control_alone_has_no_routing_to_speak_of(make_result):
    assert "uses all experts at every token" in headline([make_result("dense", 233.9, experts=2)])


def test_a_vanilla_router_that_never_switches_is_no_division_by_zero(make_result):
    said = headline([make_result("vanilla", 200.0, switch_rate=0.0), make_result("soft", 210.0)])
    assert "at 60.0 % of token pairs where Vanilla never does" in said


def test_the_fewest_misses_win_only_among_those_that_keep_half_of_the_gain(make_result):
    vanilla, dense = make_result("vanilla", 200.0), make_result("dense", 240.0, experts=2)
    mild = make_result("mild", 206.0, hit_rate=0.65)
    strong = make_result("strong", 212.0, hit_rate=0.75)
    wasteful = make_result("wasteful", 239.0, hit_rate=0.95)
    assert ", Strong switches" in headline([vanilla, mild, strong, wasteful, dense])
    assert ", Wasteful switches" in headline([vanilla, wasteful, dense])
    assert ", Wasteful switches" in headline([vanilla, mild, strong, wasteful])
    assert ", Mild switches" in headline([vanilla, mild, strong, dense], highlight="mild")


def test_flat_gates_speak_only_where_no_others_keep_enough(make_result):
    vanilla, dense = make_result("vanilla", 200.0), make_result("dense", 240.0, experts=2)
    sure = make_result("sure", 206.0, hit_rate=0.65)
    flat = make_result("flat", 206.0, hit_rate=0.75, gate_entropy=0.99, gate_margin=0.01)
    costly = make_result("costly", 239.0, hit_rate=0.95)
    assert ", Sure switches" in headline([vanilla, sure, flat, dense])
    assert ", Flat switches" in headline([vanilla, flat, costly, dense])


def test_unknown_highlights_and_no_runs_are_refused(four_runs):
    with pytest.raises(SettingError, match="highlight must be one of vanilla, soft"):
        headline(four_runs, highlight="sofd")
    with pytest.raises(SettingError, match="results"):
        headline([])
