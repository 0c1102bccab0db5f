"""Drift across sequences, beside sets learned one by one."""

from collections import Counter

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import Resampling, drift, usage_similarity
from stickymoe.traces import RoutingTrace


def top1(*sequences: list[int], num_experts: int = 6) -> RoutingTrace:
    return RoutingTrace.from_sequences([[[[e]] for e in each] for each in sequences], num_experts=num_experts)


def test_coverage_equals_that_of_sets_learned_one_by_one():
    rng = default_rng(3)
    sequences = [rng.choice(6, p=rng.dirichlet(np.ones(6)), size=tokens).tolist() for tokens in (20, 30, 5, 11)]
    found = drift(top1(*sequences), 2)
    flat = [expert for each in sequences for expert in each]
    own = held = 0
    for at, each in enumerate(sequences):
        others = Counter(expert for other, row in enumerate(sequences) if other != at for expert in row)
        best = sorted(others, key=lambda e: (-others[e], flat.index(e)))[:2]
        covered = sum(expert in best for expert in each)
        assert found.coverage[at] == pytest.approx(covered / len(each))
        own += sum(uses for _, uses in Counter(each).most_common(2))
        held += covered
    assert found.own.mean == pytest.approx(own / len(flat))
    assert found.held_out.mean == pytest.approx(held / len(flat))
    assert found.drift.mean == pytest.approx((own - held) / len(flat))
    assert found.kind == "sequences"


def test_similarity_is_the_cosine_of_counts_averaged_over_layers():
    ids = default_rng(0).integers(0, 5, (3, 12, 2, 1))
    found = usage_similarity(RoutingTrace.from_sequences(ids, num_experts=5))
    counts = np.array([[np.bincount(ids[s, :, layer, 0], minlength=5) for layer in range(2)] for s in range(3)])
    for a in range(3):
        for b in range(3):
            cosines = [
                left @ right / np.linalg.norm(left) / np.linalg.norm(right)
                for left, right in zip(counts[a], counts[b], strict=True)
            ]
            assert found[a, b] == pytest.approx(np.mean(cosines))


def test_equal_sequences_do_not_drift_and_disjoint_ones_do_wholly():
    same = drift(top1([0, 1, 0], [0, 1, 0]), 1, resampling=Resampling(resamples=20))
    assert (same.drift.mean, same.drift.interval) == (0.0, (0.0, 0.0))
    assert same.similarity == pytest.approx(np.ones((2, 2)))
    apart = drift(top1([0, 1, 0], [2, 3, 2]), 2)
    assert (apart.own.mean, apart.held_out.mean) == (1.0, 0.0)
    assert apart.similarity == pytest.approx(np.eye(2))


def test_a_layer_that_one_sequence_skips_is_left_out_of_their_likeness():
    ids = np.array([[[0], [0]], [[0], [1]], [[1], [-1]]])
    trace = RoutingTrace(ids, np.array([0, 1, 2]), num_experts=2)
    found = usage_similarity(trace)
    assert found[0].tolist() == [1.0, 0.5, 0.0]
    assert drift(trace, 1).coverage.tolist() == [0.5, 0.5, 0.0]


def test_one_long_sequence_is_compared_block_by_block():
    found = drift(top1([0] * 50 + [1] * 50), 1)
    assert found.kind.startswith("contiguous blocks of 33.33 tokens")
    assert found.coverage.shape == (3,)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(TraceError, match=r"drift needs two sequences, or one of at least 64 tokens, got one of 2"):
        drift(top1([0, 1]), 1)
    with pytest.raises(SettingError, match="capacity must be >= 1, got 0"):
        drift(top1([0], [1]), 0)
