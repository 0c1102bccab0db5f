"""Shared pools in decode order: hand-worked hits, and nothing lost on the way."""

import numpy as np
import pytest

from stickymoe.cache import simulate
from stickymoe.core.errors import TraceError
from stickymoe.traces import RoutingTrace, in_decode_order


def trace_of(ids, **settings):
    ids = np.asarray(ids)
    return RoutingTrace(ids, np.zeros(len(ids), dtype=np.int64), 4, **settings)


def test_a_hand_worked_pool_of_two_layers():
    # token:   t0      t1      t2
    # layer 0  0       0       3
    # layer 1  0       1       0
    # In one pool the requests are 0 0 | 0 1 | 3 0. LRU of two slots: miss, hit | hit, miss | miss, miss -> 2 hits.
    # Layers of their own: 0 0 3 -> 1 hit; 0 1 0 -> 1 hit of capacity 2.
    trace = trace_of([[[0], [0]], [[0], [1]], [[3], [0]]])
    shared = in_decode_order(trace, 2)
    assert shared.expert_ids[:, 0, 0].tolist() == [0, 0, 0, 1, 3, 0]
    assert simulate(shared, "lru", 2).hits == 2
    assert simulate(trace, "lru", 2).hits == 1 + 1
    # With room for one expert only the next layer's equal choice hits: 0 0 | 0 1 | 3 0 -> 2; apart: 1 and 0
    assert simulate(shared, "lru", 1).hits == 2
    assert simulate(trace, "lru", 1).hits == 1


@pytest.mark.parametrize("layers_per_pool", [1, 2, 3, 6])
def test_every_request_stands_at_its_token_and_layer(layers_per_pool):
    random = np.random.default_rng(0)
    ids = np.argsort(random.random((5, 6, 4)), axis=-1)[..., :2]
    weights = -np.sort(-random.random((5, 6, 2)).astype(np.float32))
    trace = trace_of(ids, expert_weights=weights, token_ids=np.arange(5), expert_bytes=np.full(6, 8))
    found = in_decode_order(trace, layers_per_pool)
    assert found.num_layers == 6 // layers_per_pool
    for token in range(5):
        for layer in range(6):
            pool, place = divmod(layer, layers_per_pool)
            row = token * layers_per_pool + place
            assert found.expert_ids[row, pool].tolist() == ids[token, layer].tolist()
            assert found.expert_weights[row, pool].tolist() == weights[token, layer].tolist()
            assert found.token_ids[row] == token


def test_pools_that_do_not_fit_the_trace_are_refused():
    trace = trace_of(np.zeros((2, 4, 1), dtype=np.int64))
    for size in (0, 3, 8):
        with pytest.raises(TraceError, match=f"layers_per_pool must divide the trace's 4 layers, got {size}"):
            in_decode_order(trace, size)
    uneven = trace_of(np.zeros((2, 4, 1), dtype=np.int64), expert_bytes=np.array([8, 8, 8, 9]))
    with pytest.raises(TraceError, match="experts of one pool must be of one size"):
        in_decode_order(uneven, 2)
