"""Knee, targets and next step on curves whose answers are known."""

import numpy as np
import pytest

from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.curves import (
    Curve,
    capacities_of,
    knee_of,
    next_capacity,
    next_step,
    sparse_capacities,
    targets_of,
)

GIB = 2**30


def curve(rates, policy="lru"):
    return Curve(policy, tuple(range(1, len(rates) + 1)), tuple(rates), tuple((rate,) for rate in rates))


def budget(slots, experts=8, slot_bytes=None, scope="layer"):
    return Budget(slots, experts, slot_bytes, "", scope)


def test_the_knee_is_where_a_curve_of_two_straight_lines_bends():
    bent = curve([0.0, 0.2, 0.4, 0.6, 0.65, 0.7, 0.75, 0.8])
    assert knee_of(bent, 8) == 4


def test_a_curve_without_a_bend_has_its_knee_at_the_first_capacity():
    assert knee_of(curve([0.5] * 5), 5) == 1
    assert knee_of(curve([0.1, 0.2, 0.3]), 3) == 1


def test_capacities_beyond_all_experts_do_not_move_the_knee():
    rates = [0.0, 0.2, 0.4, 0.6, 0.65, 0.7, 0.75, 0.8]
    assert knee_of(curve([*rates, *[0.8] * 40]), 8) == knee_of(curve(rates), 8)


def test_the_smallest_budget_of_a_target_is_the_first_that_reaches_it():
    lru = curve([0.1, 0.5, 0.79, 0.8, 0.85, 0.9, 0.92, 0.93])
    belady = Curve("belady", (2, 4, 8), (0.6, 0.9, 0.95), ((0.6,), (0.9,), (0.95,)))
    found = targets_of(lru, belady, budget(4, slot_bytes=GIB))
    assert [(each.slots, each.total_bytes, each.belady_slots) for each in found] == [
        (2, 2 * GIB, 2),
        (4, 4 * GIB, 4),
        (6, 6 * GIB, 4),
        (None, None, 8),
    ]


def test_the_next_gib_is_the_slots_that_fit_into_it_and_at_least_one():
    assert next_capacity(budget(2, slot_bytes=GIB / 3)) == 5
    assert next_capacity(budget(2, slot_bytes=3 * GIB)) == 3
    assert next_capacity(budget(7, slot_bytes=GIB / 3)) == 8
    assert next_capacity(budget(32, experts=128)) == 36
    assert next_capacity(budget(8)) is None


def test_what_the_next_slots_bring_is_the_difference_on_the_curve():
    step = next_step(curve([0.0, 0.5, 0.6, 0.7]), budget(2, experts=4, slot_bytes=GIB), 10.0)
    assert (step.slots, step.added_bytes, step.hit_rate) == (3, GIB, 0.6)
    assert step.gain == pytest.approx(0.1)
    assert step.saved_per_token == pytest.approx(1.0)
    assert next_step(curve([0.0, 0.5]), budget(2, experts=2), 10.0) is None


@pytest.mark.parametrize("experts", [1, 2, 8, 256, 257, 6144])
@pytest.mark.parametrize("slots", [1, 3, 5000])
def test_the_capacities_of_a_curve_rise_from_one_to_all_and_hold_the_budget(experts, slots):
    sizes = capacities_of(budget(slots, experts))
    assert sizes == sorted(set(sizes))
    assert {1, experts, slots} <= set(sizes)
    assert len(sizes) <= 260
    few = sparse_capacities(budget(slots, experts), 8, 12)
    assert few == sorted(set(few))
    assert {slots, experts} <= set(few)
    assert len(few) <= 14


def test_a_full_curve_of_few_experts_has_every_capacity():
    assert capacities_of(budget(3, 128)) == list(np.arange(1, 129))
