"""Counts without order: coverage by pinning, skew, and what is refused."""

import json

import numpy as np
import pytest

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import ModelSizes, budget_for
from stickymoe.experiments.diagnosis.inputs import diagnose_input, summary_lines
from stickymoe.experiments.diagnosis.profile import diagnose_profile
from stickymoe.experiments.diagnosis.report import render_profile
from stickymoe.traces import UsageProfile

# hand-worked: layer a is used 10 times, 8 of them by expert 2; layer b evenly
PROFILE = UsageProfile(np.array([[1, 0, 8, 1], [5, 5, 5, 5]]), layer_names=("a", "b"))
SIZES = ModelSizes(4, 2, 1, None)


def test_pinning_the_most_used_of_each_layer_catches_their_share():
    found = diagnose_profile(PROFILE, budget_for(SIZES, "layer", slots=1), "x")
    assert found.pinned == pytest.approx((8 + 5) / 30)
    assert [layer.pinned for layer in found.layers] == pytest.approx([0.8, 0.25])
    assert found.coverage == pytest.approx([13 / 30, 19 / 30, 25 / 30, 1.0])
    assert found.targets == {0.5: 2, 0.8: 3, 0.9: 4, 0.95: 4}


def test_one_pool_takes_the_most_used_of_all_layers():
    found = diagnose_profile(PROFILE, budget_for(SIZES, "model", slots=3), "x")
    assert found.pinned == pytest.approx((8 + 5 + 5) / 30)
    assert found.coverage[-1] == 1.0
    assert [layer.pinned for layer in found.layers] == pytest.approx([0.8, 0.5])


def test_skew_is_entropy_and_unused_experts():
    found = diagnose_profile(PROFILE, budget_for(SIZES, "layer", slots=1), "x")
    assert [layer.unused for layer in found.layers] == [1, 0]
    assert found.layers[1].entropy == pytest.approx(2.0)
    assert found.layers[0].entropy == pytest.approx(-(0.8 * np.log2(0.8) + 0.2 * np.log2(0.1)))


def test_what_needs_order_is_refused_with_the_reason():
    found = diagnose_input(PROFILE, "x", budget={"slots": 1})
    assert "policy failure or working-set failure" in found.unanswered
    assert all("which expert came after which" in reason for reason in found.unanswered.values())
    lines = summary_lines(found)
    assert len(lines) <= 25
    assert any("43.3 % of all uses" in line for line in lines)
    assert json.loads(json.dumps(found.as_dict()))["targets"]["0.8"] == 3


def test_a_layer_that_was_never_used_is_no_division_by_zero():
    found = diagnose_input(UsageProfile(np.array([[0, 0], [3, 1]])), "x", semantics=Semantics(scope="layer"))
    assert found.layers[0].pinned == 0
    assert found.layers[0].entropy == 0


def test_the_page_of_a_profile_has_its_numbers_and_says_what_it_cannot_tell():
    text = render_profile(diagnose_input(PROFILE, "<counts>", budget={"slots": 1}))
    assert "43.3" in text
    assert "&lt;counts&gt;" in text
    assert "<counts>" not in text
    assert "cold start against steady state" in text
