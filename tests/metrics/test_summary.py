"""The summary holds what the measures say."""

import json

import numpy as np
import pytest

from stickymoe import metrics
from stickymoe.core.errors import TraceError
from stickymoe.traces import RoutingTrace


def test_a_summary_is_json_and_holds_every_measure_per_layer_and_on_average():
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((40, 3, 8)), axis=-1)[..., :2]
    trace = RoutingTrace(ids, np.arange(40) // 10, num_experts=8)
    summary = json.loads(json.dumps(metrics.summarise(trace), allow_nan=False))
    sizes = {"tokens": 40, "sequences": 4, "layers": 3, "num_experts": 8, "top_k": 2, "chance_overlap": 0.25}
    assert {name: summary[name] for name in sizes} == sizes
    expected = {
        name: getattr(metrics, name)(trace)
        for name in ("switch_rate", "set_switch_rate", "expert_overlap", "overlap_by_use", "utilisation_entropy")
    }
    expected["load_variation"], expected["load_busiest"] = metrics.load_spread(trace)
    assert summary.keys() == sizes.keys() | expected.keys()
    for name, values in expected.items():
        assert summary[name]["per_layer"] == values.tolist()
        assert summary[name]["mean"] == pytest.approx(sum(values) / 3, abs=1e-12)


def test_a_summary_without_neighbours_is_refused_rather_than_filled_with_zeros():
    with pytest.raises(TraceError, match="switch rate needs at least one pair"):
        metrics.summarise(RoutingTrace.from_sequences([[[[0]]]], num_experts=2))
