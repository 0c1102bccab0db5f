"""One pass for all capacities equals one replay a capacity."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache import PAPER_SEMANTICS, lru_hit_rates, simulate
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
OPTIONS = st.fixed_dictionaries(
    {
        "scope": st.sampled_from(["layer", "model"]),
        "accesses": st.sampled_from(["topk", "top1"]),
        "replay": st.sampled_from(["atomic", "sequential"]),
        "reset": st.sampled_from(["sequence", "never"]),
    }
)


def random_trace(seed: int, tokens: int, layers: int, top_k: int) -> RoutingTrace:
    rng = default_rng(seed)
    ids = np.argsort(rng.random((tokens, layers, 6)), axis=-1)[..., :top_k]
    ids[1:, :, 1:][rng.random((tokens - 1, layers)) < 0.2] = -1
    return RoutingTrace(ids, np.sort(rng.integers(0, 3, tokens)), num_experts=6)


@patient
@given(
    st.tuples(st.integers(0, 2**32), st.integers(1, 15), st.integers(1, 3), st.integers(1, 4)),
    st.lists(st.integers(1, 4) | st.integers(1, 20), min_size=1, max_size=4),
    OPTIONS,
)
def test_one_pass_equals_a_replay_for_each_capacity(sizes, capacities, options):
    trace = random_trace(*sizes)
    for report, capacity in zip(lru_hit_rates(trace, capacities, **options), capacities, strict=True):
        assert report.as_dict() == simulate(trace, "lru", capacity, **options).as_dict()


@pytest.mark.parametrize("scope", ["layer", "model"])
def test_capacities_below_and_above_one_event_stand_side_by_side(scope):
    trace = random_trace(1, 60, 2, 4)
    reports = lru_hit_rates(trace, [9, 1, 4, 3, 4], scope=scope)
    replayed = [simulate(trace, "lru", capacity, scope=scope) for capacity in (9, 1, 4, 3, 4)]
    assert [report.as_dict() for report in reports] == [report.as_dict() for report in replayed]
    assert len({report.hits for report in reports}) == 4


def test_the_papers_semantics_are_named_once():
    trace = random_trace(0, 30, 2, 2)
    (report,) = lru_hit_rates(trace, [2], **PAPER_SEMANTICS)
    assert report.describe() == "LRU, capacity 2 a layer, top-1 accesses, sequential, cold at each sequence"


@pytest.mark.parametrize(
    ("capacities", "words"),
    [([], "cache.capacities must be at least one"), ([2, 0], "cache.capacity")],
)
def test_capacities_that_are_none_are_refused(capacities, words):
    with pytest.raises(SettingError, match=words):
        lru_hit_rates(random_trace(0, 5, 1, 1), capacities)
