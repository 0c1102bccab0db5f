"""Budgets in slots, shares and bytes become slots that fit; what cannot fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import SettingError
from stickymoe.experiments.diagnosis.budget import ModelSizes, budget_for

# two layers of 8 experts, 100 and 300 bytes an expert: one slot in each layer takes 400 bytes
SIZES = ModelSizes(8, 2, 2, (100, 300))
UNSIZED = ModelSizes(8, 2, 2, None)


def test_bytes_are_divided_into_equal_slots_and_rounded_down():
    budget = budget_for(SIZES, "layer", total_bytes=1999, asked="1999")
    assert (budget.slots, budget.total_bytes, budget.share) == (4, 1600, 0.5)


def test_a_pool_counts_its_experts_with_their_mean_size():
    budget = budget_for(SIZES, "model", total_bytes=1999, asked="1999")
    assert (budget.slots, budget.experts, budget.total_bytes) == (9, 16, 1800)


def test_a_share_is_of_a_layers_experts_or_of_the_models():
    assert budget_for(SIZES, "layer", share=0.5).slots == 4
    assert budget_for(SIZES, "model", share=0.5).slots == 8
    assert budget_for(SIZES, "layer", share=0.001).slots == 1


def test_without_a_budget_a_quarter_of_the_experts_is_judged_and_at_least_one_tokens_demand():
    assert budget_for(ModelSizes(64, 2, 2, None), "layer").slots == 16
    tight = budget_for(ModelSizes(8, 3, 4, None), "layer")
    assert (tight.slots, "one token's demand" in tight.asked) == (4, True)
    assert budget_for(ModelSizes(8, 3, 4, None), "model").slots == 12


def test_more_slots_than_experts_are_allowed_and_hold_all():
    assert budget_for(SIZES, "layer", slots=99).share == 1.0


def test_a_budget_of_bytes_needs_the_experts_sizes():
    with pytest.raises(SettingError, match="add --expert-bytes"):
        budget_for(UNSIZED, "layer", total_bytes=10**9, asked="1GB")
    assert budget_for(UNSIZED, "layer", slots=3).total_bytes is None


def test_a_budget_below_one_expert_says_what_is_least():
    with pytest.raises(SettingError, match="at least 400 bytes, one expert of every layer"):
        budget_for(SIZES, "layer", total_bytes=399, asked="399")
    with pytest.raises(SettingError, match="at least 200 bytes, one expert"):
        budget_for(SIZES, "model", total_bytes=199, asked="199")
    with pytest.raises(SettingError, match="at least one slot"):
        budget_for(SIZES, "layer", slots=0)


@given(st.integers(400, 10**9), st.sampled_from(["layer", "model"]))
def test_what_fits_never_takes_more_than_the_budget(total, scope):
    budget = budget_for(SIZES, scope, total_bytes=total, asked=str(total))
    assert budget.total_bytes <= total < budget.bytes_of(budget.slots + 1)
