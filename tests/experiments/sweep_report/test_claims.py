"""Every claim can end every way, and the page that was written first says what the code does."""

import dataclasses
import re
from pathlib import Path

import pytest

from stickymoe.experiments.sweep_report.claim_rules import NEEDS, PAPERS, RULES
from stickymoe.experiments.sweep_report.claims import ACROSS, decide
from stickymoe.experiments.sweep_report.conditions import Verdict
from stickymoe.experiments.sweep_report.paper import paper
from stickymoe.experiments.sweep_report.thresholds import THRESHOLDS

PAGE = (Path(__file__).parents[3] / "docs" / "claims.md").read_text(encoding="utf-8")
HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


def verdicts(*sizes):
    return {claim.key: claim.verdict for claim in decide(sizes)}


def test_the_page_and_the_code_hold_the_same_thresholds():
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", PAGE, flags=re.MULTILINE)
    assert {name: float(value) for name, value in rows} == dataclasses.asdict(THRESHOLDS)


def test_the_page_the_code_and_the_papers_list_hold_the_same_claims():
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` ([^|]+) \|", PAGE, flags=re.MULTILINE))
    assert rows == paper()["claims"]
    assert [*RULES, ACROSS] == [*(key for key in rows if key != ACROSS), ACROSS]


def test_a_claim_is_not_asked_of_a_sweep_that_was_not_made_for_it(summary):
    planned = {name for needed in NEEDS.values() for name in needed[0]}
    everything = decide([summary()], {"small": planned})
    assert {claim.key for claim in everything} == {*RULES, ACROSS} == set(NEEDS)
    few = decide([summary(), summary(size="medium")], {"small": {"vanilla", "remoe", "soft-0.05"}, "medium": set()})
    assert [(claim.key, claim.where) for claim in few] == [("low-coefficient", "small"), ("post-hoc", "small")]
    assert decide([summary()], {"small": {"vanilla", "soft-0.1", "soft-hard-0.1-1"}}) == []


def test_every_variant_that_the_page_names_is_one_of_the_registry():
    from stickymoe.experiments.variants import VARIANTS

    named = set(re.findall(r"`((?:soft|hard-window|soft-hard|remoe)[\w.-]*)`", PAGE)) - set(RULES)
    assert {"soft-0.5", "remoe", "soft-hard-0.1-1"} <= named
    assert named <= set(VARIANTS)
    assert set(PAPERS) <= set(VARIANTS)


def test_numbers_like_the_papers_make_its_claims_hold(summary):
    found = verdicts(summary(), summary({"soft-0.5": {"change": 0.99}}, size="medium"))
    assert set(found.values()) == {HOLDS}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("low-coefficient", {"soft-0.05": {"change": 1.03}}),
        ("monotone", {"soft-0.2": {"rate": 0.5}}),
        ("monotone", {"soft-0.5": {"rate": 0.39}}),
        ("post-hoc", {"remoe": {"rate": 0.6}}),
        ("hard-window", {"hard-window-2": {"rate": 0.7}}),
        ("hard-window", {"hard-window-2": {"change": 1.01}}),
        ("hard-window", {"soft-0.1": {"change": 1.1}}),
        ("hard-window", {"hard-window-8": {"rate": 0.4}}),
        ("soft-hard", {"oracle": {"rate": 0.2}}),
        ("soft-hard", {"soft-hard-0.1-1": {"change": 1.03}}),
        ("first-layer", {"soft-0.5": {"layers": (1, 1, 1, 1)}}),
    ],
)
def test_a_claim_fails_where_a_condition_is_broken(summary, key, changes):
    assert verdicts(summary(changes))[key] is FAILS


def test_experts_given_up_break_the_claim_of_utilisation(invented):
    from stickymoe.experiments.sweep_report.rows import sweep_of
    from stickymoe.experiments.sweep_report.summary import summarise_size

    metrics = invented.measured("small", 42, "soft-0.5", change=1.0, rate=0.3, entropy=1.0, margin=0.3)
    metrics["routing"]["utilisation_entropy_bits"] = invented.flat(1.8)
    rows = [
        *invented.invented_rows(seeds=(42,), variants=("vanilla",)),
        invented.invented_row(variant="soft-0.5", metrics=metrics),
    ]
    assert verdicts(summarise_size(sweep_of(rows), "small"))["utilisation"] is FAILS


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        ("low-coefficient", "soft-0.01"), ("monotone", "soft-0.5"), ("post-hoc", "remoe"),
        ("hard-window", "hard-window-8"), ("soft-hard", "soft-hard-0.1-1"), ("utilisation", "soft-0.5"),
        ("first-layer", "soft-0.5"), ("first-layer", "vanilla"), ("monotone", "vanilla"),
    ],
)  # fmt: skip
def test_a_missing_run_leaves_its_claim_open_and_is_named(summary, key, missing):
    (claim,) = (claim for claim in decide([summary(without=(missing,))]) if claim.key == key)
    assert claim.verdict is OPEN
    assert any(missing in condition.reason for condition in claim.telling)


def test_where_experts_gain_nothing_kept_quality_proves_nothing_but_lost_quality_counts(summary):
    found = verdicts(summary({"dense": {"change": 1.0}}))
    assert found["low-coefficient"] is OPEN
    assert found["soft-hard"] is OPEN
    assert verdicts(summary({"dense": {"change": 1.0}, "soft-0.01": {"change": 1.05}}))["low-coefficient"] is FAILS


def test_without_a_dense_control_kept_quality_is_open(summary):
    (claim, *_) = decide([summary(without=("dense",))])
    assert claim.verdict is OPEN
    assert "without a dense control" in claim.telling[0].reason


def test_one_seed_decides_what_is_far_and_leaves_open_what_is_near(summary):
    found = verdicts(summary(seeds=(42,)))
    assert found["monotone"] is HOLDS
    assert verdicts(summary({"soft-0.5": {"rate": 0.71 * 0.5}}, seeds=(42,)))["monotone"] is OPEN


def test_sizes_are_compared_only_where_there_are_two(summary):
    assert verdicts(summary())[ACROSS] is OPEN
    assert verdicts(summary(), summary(size="medium"))[ACROSS] is FAILS


def test_the_papers_own_numbers_stand_beside(summary):
    claims = {claim.key: claim for claim in decide([summary()])}
    assert claims["hard-window"].conditions[1].paper == "+5.6 %"
    assert claims["monotone"].conditions[0].paper == "57.7 %"


def test_flat_gates_stand_beside_the_claims_that_they_touch_without_deciding(summary):
    claims = {claim.key: claim for claim in decide([summary()])}
    assert claims["monotone"].verdict is HOLDS
    assert "flat gates in 4 of 4 layers" in claims["monotone"].remarks[0]
    assert claims["post-hoc"].remarks == []
