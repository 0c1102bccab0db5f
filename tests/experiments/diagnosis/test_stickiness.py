"""The model of a sticky router: what it keeps, how it is labelled, and where it is refused."""

import numpy as np
import pytest

from stickymoe.cache import simulate
from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.locality import SkewOrOrder, skew_or_order
from stickymoe.experiments.diagnosis.stickiness import STAYS, _sample, stickiness_of
from stickymoe.traces import RoutingTrace

BUDGET = Budget(4, 16, None, "")


@pytest.fixture(scope="module")
def modelled(plain_trace):
    return stickiness_of(plain_trace, skew_or_order(plain_trace, BUDGET, Semantics()), Semantics(), {})


def test_more_stickiness_is_more_overlap_and_more_hits(modelled):
    assert list(modelled.overlaps) == sorted(modelled.overlaps)
    assert len(modelled.overlaps) == len(STAYS)
    for curve in modelled.curves:
        assert list(curve.hit_rates) == sorted(curve.hit_rates)
    assert [curve.slots for curve in modelled.curves] == [2, 4, 8]
    assert "a model, not a measurement" in modelled.model


def test_a_trace_that_the_model_describes_stands_on_its_curve(modelled):
    # the trace was drawn as the model draws: each expert kept with a fixed probability, by one popularity
    assert modelled.predicted == pytest.approx(modelled.measured, abs=0.06)


def test_between_its_points_the_curve_is_straight(modelled):
    middle = (modelled.overlaps[1] + modelled.overlaps[2]) / 2
    rates = next(curve.hit_rates for curve in modelled.curves if curve.slots == 4)
    assert modelled.at(middle) == pytest.approx((rates[1] + rates[2]) / 2)


def test_synthetic_tokens_never_name_an_expert_twice_and_follow_popularity():
    popularity = np.array([[0.7, 0.1, 0.1, 0.05, 0.05]])
    ids = _sample(popularity, 2)[0, :, 0]
    assert (ids[:, 0] != ids[:, 1]).all()
    shares = np.bincount(ids.ravel(), minlength=5) / ids.size
    # drawn without replacement, by the definition: first by popularity, second by popularity among the others
    pairs = popularity[0][:, None] * popularity[0][None, :] / (1 - popularity[0][:, None])
    np.fill_diagonal(pairs, 0)
    assert shares == pytest.approx((pairs.sum(axis=0) + pairs.sum(axis=1)) / 2, abs=0.03)


def test_a_kept_expert_stays_with_the_probability_asked_for():
    ids = _sample(np.full((2, 64), 1 / 64), 4)
    for stay, rows in zip(STAYS, ids, strict=True):
        kept = (rows[1:, :, :, None] == rows[:-1, :, None, :]).any(axis=2).mean()
        assert kept == pytest.approx(stay + (1 - stay) * 4 / 64, abs=0.03)


def test_the_measured_star_is_lru_on_the_trace(plain_trace, modelled):
    assert modelled.measured == pytest.approx(simulate(plain_trace, "lru", 4).hit_rate)


def test_a_pool_is_modelled_by_its_slots_over_the_layers(plain_trace):
    semantics = Semantics(scope="model")
    order = skew_or_order(plain_trace, Budget(13, 48, None, "", "model"), semantics)
    assert stickiness_of(plain_trace, order, semantics, {}).slots == 4


def test_top1_is_modelled_with_one_expert_a_token(plain_trace):
    semantics = Semantics(accesses="top1")
    found = stickiness_of(plain_trace, skew_or_order(plain_trace, BUDGET, semantics), semantics, {})
    assert found.measured == pytest.approx(simulate(plain_trace, "lru", 4, accesses="top1").hit_rate)


def test_single_tokens_have_no_neighbours_to_be_like():
    unanswered = {}
    trace = RoutingTrace(np.zeros((3, 1, 1), dtype=int), np.arange(3), 2)
    order = SkewOrOrder(1, 0.5, 0.0, 0.0, None, 1.0, None, "neither")
    assert stickiness_of(trace, order, Semantics(), unanswered) is None
    assert "neighbours" in unanswered["a sticky router"]
