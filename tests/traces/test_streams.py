"""In which order a cache is asked for experts."""

import numpy as np
import pytest

from stickymoe.traces import RoutingTrace, streams

TRACE = RoutingTrace(
    np.array([[[0, 1], [2, 3]], [[1, -1], [-1, -1]], [[3, 0], [1, 2]]]), np.array([5, 5, 6]), num_experts=4
)


@pytest.mark.parametrize(
    ("options", "events", "layers"),
    [
        ({}, [[[0, 1], [1]], [[2, 3], []], [[3, 0]], [[1, 2]]], [[0, 0], [1, 1], [0], [1]]),
        ({"accesses": "top1"}, [[[0], [1]], [[2], []], [[3]], [[1]]], [[0, 0], [1, 1], [0], [1]]),
        (
            {"replay": "sequential"},
            [[[0], [1], [1]], [[2], [3]], [[3], [0]], [[1], [2]]],
            [[0] * 3, [1] * 2, [0] * 2, [1] * 2],
        ),
        ({"reset": "never"}, [[[0, 1], [1], [3, 0]], [[2, 3], [], [1, 2]]], [[0] * 3, [1] * 3]),
        ({"scope": "model"}, [[[0, 1], [6, 7], [1], []], [[3, 0], [5, 6]]], [[0, 1, 0, 1], [0, 1]]),
        (
            {"scope": "model", "reset": "never", "replay": "sequential", "accesses": "top1"},
            [[[0], [6], [1], [3], [5]]],
            [[0, 1, 0, 0, 1]],
        ),
    ],
)
def test_a_trace_becomes_the_streams_its_caches_see(options, events, layers):
    found = list(streams(TRACE, **options))
    assert [stream.events for stream in found] == events
    assert [stream.layers.tolist() for stream in found] == layers
