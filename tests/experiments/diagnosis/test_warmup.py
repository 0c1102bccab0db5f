"""Windows after a cold start equal a slow replay that counts token by token."""

from collections import OrderedDict

import numpy as np
import pytest

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.diagnosis.warmup import warm_up
from stickymoe.traces import RoutingTrace


def hits_by_place(trace, capacity):
    """Replay LRU by the definition; return hits and lookups by place in the sequence."""
    lengths = np.diff(trace.sequence_starts())
    hits, lookups = np.zeros(lengths.max()), np.zeros(lengths.max())
    for sequence in trace.sequences():
        for layer in range(trace.num_layers):
            recent = OrderedDict()
            for place, experts in enumerate(sequence[:, layer].tolist()):
                hits[place] += sum(expert in recent for expert in experts)
                lookups[place] += len(experts)
                for expert in experts:
                    recent.pop(expert, None)
                    recent[expert] = None
                while len(recent) > capacity:
                    recent.popitem(last=False)
    return hits, lookups


def test_windows_and_both_rates_are_those_of_a_slow_replay(plain_trace):
    found = warm_up(plain_trace, Budget(4, 16, None, ""), Semantics(), {})
    hits, lookups = hits_by_place(plain_trace, 4)
    assert [(each.start, each.stop) for each in found.windows] == [
        (0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 60),
    ]  # fmt: skip
    for each in found.windows:
        span = slice(each.start, each.stop)
        assert each.hit_rate == pytest.approx(hits[span].sum() / lookups[span].sum())
    assert found.cumulative == pytest.approx(hits.sum() / lookups.sum())
    assert found.steady == pytest.approx(hits[30:].sum() / lookups[30:].sum())


def test_a_cold_cache_misses_all_of_the_first_token_and_is_warm_later(plain_trace):
    found = warm_up(plain_trace, Budget(6, 16, None, ""), Semantics(), {})
    assert found.windows[0].hit_rate == 0
    assert found.warm_after > 0
    warm = next(each for each in found.windows if each.start == found.warm_after)
    assert warm.hit_rate >= 0.9 * found.steady


def test_sequences_of_three_tokens_say_why_there_is_no_answer():
    trace = RoutingTrace(np.zeros((6, 1, 1), dtype=int), np.array([0, 0, 0, 1, 1, 1]), 2)
    unanswered = {}
    assert warm_up(trace, Budget(1, 2, None, ""), Semantics(), unanswered) is None
    assert "shorter than four" in unanswered["cold start"]


def test_a_layer_that_serves_no_early_token_is_no_obstacle():
    ids = np.array([[[0], [-1]]] * 6 + [[[1], [1]]] * 6)
    found = warm_up(RoutingTrace(ids, np.zeros(12, dtype=int), 2), Budget(1, 2, None, ""), Semantics(), {})
    assert found.cumulative == pytest.approx(15 / 18)
