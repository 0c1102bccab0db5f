"""Remedies on traces where it is known what must help, and reasons where nothing can be tried."""

import numpy as np
import pytest

from stickymoe.cache import simulate
from stickymoe.cache.reroute import simulate_rerouting
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import SettingError, StickyMoEError
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.candidates import served_part
from stickymoe.experiments.diagnosis.locality import skew_or_order
from stickymoe.experiments.diagnosis.parts import first_part
from stickymoe.experiments.diagnosis.policies import PolicyResult
from stickymoe.experiments.diagnosis.remedies import Remedy, remedies_of
from stickymoe.traces import RoutingTrace

RESULTS = [
    PolicyResult("fifo", "online", 0.6, 1.0, None, None),
    PolicyResult("lru", "online", 0.5, 1.0, None, 0.0),
    PolicyResult("belady", "bound", 0.9, 1.0, None, 1.0),
]


def tried(trace, slots, results=RESULTS, candidates=None, **semantics):
    told, unanswered = Semantics(**semantics), {}
    budget = Budget(slots, trace.num_experts, None, "")
    order = skew_or_order(trace, budget, told)
    return remedies_of(trace, budget, told, results, order, unanswered, candidates), unanswered


def test_everything_is_tried_on_a_trace_that_knows_its_weights(full_trace):
    found, unanswered = tried(full_trace, 4)
    assert {each.kind for each in found} == {"policy", "split", "pool", "pinning", "prefetching", "dropping"}
    assert set(unanswered) == {"would rerouting pay"}
    assert [each.name for each in found if each.bound] == ["prefetch, oracle"]


def test_the_baseline_is_lru_on_the_same_tokens(plain_trace):
    found, _ = tried(plain_trace, 4)
    lru = simulate(plain_trace, "lru", 4).hit_rate
    for each in found:
        if each.kind == "prefetching":
            assert each.baseline == pytest.approx(lru)


def test_the_oracle_hits_everything_but_what_nothing_precedes(plain_trace):
    found, _ = tried(plain_trace, 8)
    oracle = next(each for each in found if each.bound)
    # only the very first event of each sequence has no event before it to fetch during
    misses = plain_trace.num_sequences * plain_trace.top_k
    assert oracle.hit_rate == pytest.approx(1 - misses / plain_trace.expert_ids.size)


def test_another_split_helps_layers_that_need_different_numbers_of_slots():
    random = np.random.default_rng(0)
    narrow = np.zeros((400, 1, 1), dtype=int)
    wide = random.integers(0, 8, (400, 1, 1))
    trace = RoutingTrace(np.concatenate([narrow, wide], axis=1), np.repeat(np.arange(4), 100), 8)
    found, _ = tried(trace, 4)
    assert next(each for each in found if each.kind == "split").pays


def test_pinning_pays_where_a_few_experts_are_always_hot_and_the_others_never_return():
    random = np.random.default_rng(0)
    hot = random.random((800, 1, 1)) < 0.5
    ids = np.where(hot, random.integers(0, 2, (800, 1, 1)), 2 + np.arange(800).reshape(-1, 1, 1) % 62)
    found, _ = tried(RoutingTrace(ids, np.repeat(np.arange(8), 100), 64), 2)
    assert next(each for each in found if each.kind == "pinning").pays


def test_without_weights_nothing_is_dropped_and_the_reason_is_said(plain_trace):
    found, unanswered = tried(plain_trace, 4)
    assert "dropping" not in {each.kind for each in found}
    assert "gate weights" in unanswered["would dropping pay"]


def test_without_candidates_nothing_is_rerouted_and_the_reason_is_said(plain_trace, full_trace):
    for trace, why in ((plain_trace, "no others to choose from and no gate weights;"), (full_trace, "choose from;")):
        found, unanswered = tried(trace, 4, candidates=trace)
        assert "rerouting" not in {each.kind for each in found}
        assert why in unanswered["would rerouting pay"]
        assert "the 2 experts of a token that served it" in unanswered["would rerouting pay"]
        assert "--served" in unanswered["would rerouting pay"]


def test_rerouting_pays_where_the_next_rank_is_always_resident():
    # rank 0 is always expert 0; ranks 1 and 2 are a new one and expert 1, who is hardly lighter
    ids = np.stack([np.zeros(60, int), 2 + np.arange(60) % 14, np.ones(60, int)], axis=1)[:, None]
    weights = np.tile([0.5, 0.26, 0.24], (60, 1, 1))
    wide = RoutingTrace(ids, np.repeat([0, 1], 30), 16, expert_weights=weights)
    narrow = served_part(wide, 2)
    assert narrow.expert_ids.tolist() == wide.expert_ids[..., :2].tolist()
    found, unanswered = tried(narrow, 3, candidates=wide)
    (best,) = [each for each in found if each.kind == "rerouting"]
    assert best.name == "resident experts of the first 3 ranks instead of misses"
    assert best.baseline == simulate(narrow, "lru", 3).hit_rate
    report = simulate_rerouting(wide, "max-rank", 3, 3, served=2)
    assert best.hit_rate == report.hit_rate
    assert f"{100 * report.changed_share:.1f} % of choices changed" in best.cost
    assert "would rerouting pay" not in unanswered


def test_ranks_are_tried_no_farther_than_recorded():
    random = np.random.default_rng(0)
    weights = -np.sort(-random.dirichlet(np.ones(12), (40, 2)), axis=-1)
    ids = random.permuted(np.tile(np.arange(12), (40, 2, 1)), axis=-1)
    for slots, ranks in ((5, ["5"]), (7, ["6", "7"]), (12, ["6", "8"])):
        wide = RoutingTrace(ids[..., :slots], np.repeat([0, 1], 20), 12, expert_weights=weights[..., :slots])
        found, _ = tried(served_part(wide, 4), 4, candidates=wide)
        assert [each.name.split()[5] for each in found if each.kind == "rerouting"] == ranks


def test_the_served_part_keeps_the_heaviest_and_what_goes_with_them():
    ids = np.array([[[4, 1, 3]], [[2, 0, -1]]])
    weights = np.array([[[0.5, 0.1, 0.4]], [[0.7, 0.3, 9.0]]])
    resident = np.array([[[1, 0, 1]], [[0, 1, -1]]])
    wide = RoutingTrace(ids, [0, 0], 5, expert_weights=weights, resident=resident)
    narrow = served_part(wide, 2)
    assert narrow.expert_ids.tolist() == [[[4, 3]], [[2, 0]]]
    assert narrow.expert_weights.tolist() == np.float32([[[0.5, 0.4]], [[0.7, 0.3]]]).tolist()
    assert narrow.resident.tolist() == [[[1, 1]], [[0, 1]]]
    with pytest.raises(SettingError, match="served must be from 1 to the 3 slots recorded, got 4"):
        served_part(wide, 4)
    with pytest.raises(SettingError, match="served must be left out for a trace without gate weights"):
        served_part(RoutingTrace(ids, [0, 0], 5), 2)


def test_rules_that_the_replays_do_not_know_are_named(plain_trace):
    _, unanswered = tried(plain_trace, 4, replay="sequential")
    assert "atomic" in unanswered["would prefetching pay"]


def test_one_short_sequence_is_too_little_to_learn_pinning_on():
    trace = RoutingTrace(np.zeros((8, 2, 1), dtype=int), np.zeros(8, dtype=int), 4)
    _, unanswered = tried(trace, 2)
    assert "one short sequence" in unanswered["would pinning pay"]


def test_no_policy_is_proposed_where_lru_is_best(plain_trace):
    best = [PolicyResult("lru", "online", 0.7, 1.0, None, 0.0), *RESULTS[:1], RESULTS[2]]
    found, _ = tried(plain_trace, 4, results=best)
    assert "policy" not in {each.kind for each in found}


def test_two_points_pay():
    assert Remedy("x", "x", 0.52, 0.5).pays
    assert not Remedy("x", "x", 0.519, 0.5).pays
    assert Remedy("x", "x", 0.4, 0.5).gain == pytest.approx(-0.1)


def test_slow_things_are_tried_on_whole_sequences_from_the_front(plain_trace):
    part, told = first_part(plain_trace, 130 * 6)
    assert part.num_tokens == 120
    assert told == ", on the first 120 tokens"
    cut, _ = first_part(plain_trace, 30 * 6)
    assert cut.num_tokens == 30
    assert first_part(plain_trace, 10**9) == (plain_trace, "")


def test_the_reasons_are_errors_of_this_package_only(plain_trace, monkeypatch):
    from stickymoe.experiments.diagnosis import remedies

    def broken(*words, **more):
        raise ZeroDivisionError

    monkeypatch.setattr(remedies, "simulate_prefetch", broken)
    with pytest.raises(ZeroDivisionError):
        tried(plain_trace, 4)
    assert issubclass(StickyMoEError, Exception)
