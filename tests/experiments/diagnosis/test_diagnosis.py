"""The whole diagnosis: its parts agree with each other, with `simulate`, and with what is known of the traces."""

import json
from pathlib import Path

import numpy as np
import pytest

from stickymoe.cache import simulate
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import SettingError
from stickymoe.experiments.diagnosis.answers import answers
from stickymoe.experiments.diagnosis.inputs import diagnose_input, summary_lines, with_expert_bytes
from stickymoe.traces import RoutingTrace, read_trace

TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "traces"
FEW = ("fifo", "static")


def test_the_numbers_are_those_of_simulate(full_trace, full_diagnosis):
    for result in full_diagnosis.policies:
        report = simulate(full_trace, result.policy, 4)
        assert result.hit_rate == pytest.approx(report.hit_rate)
        assert result.loads_per_token == pytest.approx(report.loads / full_trace.num_tokens)
        assert result.bytes_per_token == pytest.approx(report.bytes_moved / full_trace.num_tokens)
    lru = full_diagnosis.curve("lru")
    for capacity in (1, 2, 7, 16):
        assert lru.at(capacity) == pytest.approx(simulate(full_trace, "lru", capacity).hit_rate)


def test_hits_and_the_three_kinds_of_misses_add_up(full_diagnosis):
    assert full_diagnosis.result("lru").hit_rate + full_diagnosis.shares.misses == pytest.approx(1.0)
    assert full_diagnosis.shares.policy >= 0
    assert full_diagnosis.shares.working_set >= 0


def test_layers_and_phases_make_up_the_whole(full_trace, full_diagnosis):
    rates = [layer.lru for layer in full_diagnosis.layers]
    assert np.mean(rates) == pytest.approx(full_diagnosis.result("lru").hit_rate)
    assert sum(layer.miss_share for layer in full_diagnosis.layers) == pytest.approx(1.0)
    assert [layer.name for layer in full_diagnosis.layers] == ["1", "2", "mtp0"]
    phases = full_diagnosis.phases
    assert [(each.phase, each.tokens) for each in phases] == [("prefill", 60), ("decode", 90)]
    together = sum(each.tokens * each.lru for each in phases) / full_trace.num_tokens
    assert together == pytest.approx(full_diagnosis.result("lru").hit_rate)


def test_the_curve_of_every_layer_averages_to_the_curve(full_diagnosis):
    for curve in full_diagnosis.curves:
        assert np.mean(curve.per_layer, axis=1) == pytest.approx(curve.hit_rates)


def test_belady_is_never_below_any_policy_that_must_load(full_diagnosis):
    bound = full_diagnosis.result("belady").hit_rate
    assert all(each.hit_rate <= bound + 1e-12 for each in full_diagnosis.policies if each.kind == "online")
    assert full_diagnosis.result("lru").gap_captured == 0
    assert full_diagnosis.result("static").kind == "hindsight"


def test_everything_is_json_without_nan(full_diagnosis, plain_diagnosis):
    for found in (full_diagnosis, plain_diagnosis):
        again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        assert again["kind"] == "trace"
        assert again["budget"]["slots"] == 4


def test_the_summary_fits_a_screen_and_holds_the_main_numbers(full_diagnosis, plain_diagnosis):
    for found in (full_diagnosis, plain_diagnosis):
        lines = summary_lines(found)
        assert len(lines) <= 24  # the command adds the line of the report
        assert max(map(len, lines)) <= 100
        text = "\n".join(lines)
        assert f"{100 * found.result('lru').hit_rate:.1f} %" in text
        assert f"{100 * found.result('belady').hit_rate:.1f} %" in text
        assert found.verdict.sentence[:20] in text


def test_what_is_not_known_is_not_guessed(plain_diagnosis):
    assert set(plain_diagnosis.unanswered) == {
        "prefill or decode", "the device's hits", "times", "would dropping pay", "would rerouting pay",
    }  # fmt: skip
    assert plain_diagnosis.phases == []
    assert plain_diagnosis.device is None
    assert plain_diagnosis.next_step.added_bytes is None


def test_a_trace_that_knows_all_but_other_candidates_gets_every_answer_but_rerouting_and_times(full_diagnosis):
    assert set(full_diagnosis.unanswered) == {"times", "would rerouting pay"}
    assert {answer.word for answer in answers(full_diagnosis)} == {
        "hit rate", "verdict", "policy", "sizes", "knee", "next", "layers", "phases", "start", "locality", "pays",
        "sticky", "device",
    }  # fmt: skip


@pytest.mark.parametrize(
    "semantics",
    [
        {"scope": "model"},
        {"accesses": "top1"},
        {"replay": "sequential"},
        {"prefill": "pass", "count": "unique"},
        {"reset": "never"},
        {"admission": "bypass"},
        {"batch": 2},
    ],
)
def test_every_way_of_counting_is_carried_through(full_trace, semantics):
    told = Semantics(**semantics)
    found = diagnose_input(full_trace, "x", semantics=told, budget={"slots": 6}, policies=FEW)
    report = simulate(full_trace, "lru", 6, **semantics)
    assert found.result("lru").hit_rate == pytest.approx(report.hit_rate)
    assert found.curve("lru").at(6) == pytest.approx(report.hit_rate)
    assert found.counted == report.describe()
    assert found.warm_up is not None


def test_a_pool_below_one_tokens_demand_is_cautioned(full_trace):
    found = diagnose_input(full_trace, "x", semantics=Semantics(scope="model"), budget={"slots": 3}, policies=FEW)
    assert "cliff" in found.cliff
    assert any("cliff" in line for line in summary_lines(found))


def test_a_guessed_number_of_experts_is_cautioned(plain_trace):
    import dataclasses

    guessed = dataclasses.replace(plain_trace, provenance={"num_experts_from": "largest id + 1"})
    lines = "\n".join(summary_lines(diagnose_input(guessed, "x", budget={"slots": 4}, policies=FEW)))
    assert "guessed: largest id + 1" in lines
    assert "--num-experts" in lines


@pytest.mark.parametrize("slots", [1, 15, 16, 40])
def test_tiny_and_boundless_budgets_are_answered(plain_trace, slots):
    found = diagnose_input(plain_trace, "x", budget={"slots": slots}, policies=FEW)
    assert len(summary_lines(found)) <= 24
    if slots >= 16:
        assert found.next_step is None
        assert found.shares.policy == pytest.approx(0)


def test_one_token_is_a_trace_too():
    found = diagnose_input(RoutingTrace(np.array([[[0, 1]]]), np.array([0]), 4), "x", budget={"slots": 2}, policies=FEW)
    assert found.result("lru").hit_rate == 0
    assert found.verdict.name == "first uses"
    assert len(summary_lines(found)) <= 24


def test_one_layer_of_one_expert_that_always_hits():
    trace = RoutingTrace(np.zeros((200, 1, 1), dtype=int), np.zeros(200, dtype=int), 1)
    found = diagnose_input(trace, "x", policies=FEW)
    assert found.verdict.name == "fits"
    assert summary_lines(found)


def test_an_unknown_policy_names_the_nearest(plain_trace):
    with pytest.raises(SettingError, match="did you mean 'belady'"):
        diagnose_input(plain_trace, "x", policies=("beladi",))


def test_a_policy_that_the_trace_cannot_feed_is_left_out_with_its_reason(plain_trace):
    found = diagnose_input(plain_trace, "x", budget={"slots": 4}, policies=("score-ema",))
    assert "weights" in found.unanswered["policy score-ema"]


def test_sizes_are_given_where_the_trace_has_none_and_only_there(plain_trace, full_trace):
    found = diagnose_input(plain_trace, "x", budget={"total_bytes": 12 * 2**20, "asked": "12MiB"}, expert_bytes=2**20)
    assert found.budget.slots == 4
    with pytest.raises(SettingError, match="names its experts' sizes"):
        with_expert_bytes(full_trace, 5)


def test_bytes_are_shared_out_as_simulate_does(full_trace):
    budget = {"total_bytes": 18 * 2**20, "asked": "18MiB"}
    found = diagnose_input(full_trace, "x", budget=budget, policies=FEW)
    assert found.budget.slots == 4
    report = simulate(full_trace, "lru", capacity_bytes=18 * 2**20)
    assert found.result("lru").hit_rate == pytest.approx(report.hit_rate)


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the shared traces")
def test_a_published_trace_of_prompts_with_both_phases_is_judged():
    found = diagnose_input(
        read_trace(TRACES / "onnx-genai" / "moe_expert_trace.json"), "granite", budget={"share": 0.25}, policies=FEW
    )
    assert (found.facts.layers, found.facts.num_experts, found.facts.top_k) == (24, 32, 8)
    assert found.budget.slots == 8
    assert len(found.phases) == 2
