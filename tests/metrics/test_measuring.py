"""Everything at once: the same numbers as the measures alone, JSON, notes, and a table that fits a terminal."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe import metrics
from stickymoe.core.errors import SettingError
from stickymoe.metrics import Resampling, measure, table
from stickymoe.traces import DECODE, PREFILL, RoutingTrace, UsageProfile

QUICK = Resampling(resamples=20)
FEW = {"windows": [4], "lags": [1, 3], "segments": [4], "capacities": [2, 4], "resampling": QUICK}


def routed(sequences: int = 3, tokens: int = 20, layers: int = 2, experts: int = 8, top_k: int = 2) -> RoutingTrace:
    taste = default_rng(0).random((sequences * tokens, layers, experts))
    ids = np.argsort(taste, axis=-1)[..., :top_k]
    return RoutingTrace(ids, np.arange(sequences * tokens) // tokens, experts)


def finite(measures: metrics.Measures) -> dict:
    return json.loads(json.dumps(measures.as_dict(), allow_nan=False))


def test_rows_hold_what_the_measures_alone_say():
    trace = routed()
    found = measure(trace, **FEW)
    expected = {
        ("switch_rate", ()): metrics.switch_rate(trace),
        ("set_switch_rate", ()): metrics.set_switch_rate(trace),
        ("expert_overlap", (("lag", 1),)): metrics.expert_overlap(trace),
        ("expert_overlap", (("lag", 3),)): metrics.expert_overlap(trace, 3),
        ("overlap_by_use", ()): metrics.overlap_by_use(trace),
        ("utilisation_entropy", ()): metrics.utilisation_entropy(trace),
        ("load_variation", ()): metrics.load_spread(trace).variation,
        ("load_busiest", ()): metrics.load_spread(trace).busiest,
        ("working_set", (("window", 4),)): metrics.working_set(trace, 4).mean,
        ("segment_routing_best_performance", (("segment", 4),)): metrics.segment_routing_best_performance(
            trace, 4
        ).per_layer,
    }
    for (name, parameters), values in expected.items():
        row = found.find(name, **dict(parameters))
        assert row.value.per_layer == pytest.approx(values.tolist())
        assert row.value.interval[0] <= row.value.mean <= row.value.interval[1]
    segments = metrics.segment_routing_best_performance(trace, 4)
    assert found.find("segment_routing_best_performance", segment=4).value.mean == pytest.approx(segments.value)
    assert found.find("srp_rho_hat", segment=4).value.mean == pytest.approx(segments.rho_hat)
    cached = metrics.segment_cache_best_hit_rate(trace, 4, 2).value
    assert found.find("segment_cache_best_hit_rate", segment=4, capacity=2).value.mean == pytest.approx(cached)


def test_reuse_rows_sum_up_the_distances():
    trace = routed(layers=1)
    (counts,) = metrics.reuse_distances(trace)
    found = measure(trace, **FEW)
    reuses = sorted(d for d, uses in counts.items() if d >= 0 for _ in range(uses))
    assert found.find("first_use_rate").value.mean == counts[-1] / sum(counts.values())
    for name, share in (("reuse_distance_median", 0.5), ("reuse_distance_90", 0.9)):
        assert found.find(name).value.mean == reuses[int(np.ceil(share * len(reuses))) - 1]


def test_phases_are_measured_as_traces_of_their_own():
    trace = routed()
    phased = replace(trace, phases=np.tile(np.repeat([PREFILL, DECODE], [8, 12]), 3))
    found = measure(phased, **FEW)
    assert list(dict.fromkeys(row.phase for row in found.rows)) == ["all", "prefill", "decode"]
    for phase in ("prefill", "decode"):
        alone = measure(phased.select(phase=phase), **FEW)
        assert [row.value for row in found.rows if row.phase == phase] == [row.value for row in alone.rows]
        assert [each for name, each in found.locality if name == phase] == [each for _, each in alone.locality]
    assert {each.predictor for each in found.predictions if not each.without} >= {"prompt", "previous"}
    only = replace(trace, phases=np.full(60, DECODE))
    assert {row.phase for row in measure(only, **FEW).rows} == {"all"}


def test_the_json_form_is_finite_and_complete():
    found = finite(measure(routed(), **FEW))
    assert found["sizes"] == {"tokens": 60, "sequences": 3, "layers": 2, "num_experts": 8, "top_k": 2}
    assert found["layer_names"] == ["0", "1"]
    assert found["resampling"] == {"resamples": 20, "confidence": 0.95, "seed": 0, "units": "sequences", "n": 3}
    assert {row["name"] for row in found["measures"]} >= {"switch_rate", "srp_rho_hat", "reuse_distance_90"}
    assert [each["verdict"] for each in found["locality"]] == ["neither", "neither"]
    assert np.array(found["drift"][0]["similarity"]).shape == (3, 3)
    assert found["notes"] == [
        "intervals over 3 sequences are wide, and one odd sequence moves them",
        "predictor prompt: the trace does not tell prompt from decoded tokens",
    ]


def test_the_same_twice_is_the_same():
    assert finite(measure(routed(), **FEW)) == finite(measure(routed(), **FEW))


def test_weights_and_other_names_for_the_experts_change_nothing():
    trace = routed()
    weights = np.ones(trace.expert_ids.shape, dtype=np.float32)
    renamed = RoutingTrace(default_rng(1).permutation(8)[trace.expert_ids], trace.sequence_ids, 8, weights)
    left, right = measure(trace, **FEW), measure(renamed, **FEW)
    for before, after in zip(left.rows, right.rows, strict=True):
        # Ties of the segment cache are settled by number.
        if before.name != "segment_cache_best_hit_rate":
            assert after.value.per_layer == pytest.approx(before.value.per_layer)
    assert [each.recall and each.recall.mean for each in left.predictions] == [
        each.recall and each.recall.mean for each in right.predictions
    ]
    assert [each.static_held_out.mean for _, each in left.locality] == [
        each.static_held_out.mean for _, each in right.locality
    ]


@pytest.mark.parametrize(
    "trace",
    [
        RoutingTrace.from_sequences([[[[0]]]], num_experts=1),
        RoutingTrace.from_sequences([[[[0]]] * 5], num_experts=1),
        RoutingTrace.from_sequences([[[[0, 1]]], [[[1, 0]]]], num_experts=2),
        routed(sequences=1, tokens=70),
        routed(experts=4, top_k=4),
        RoutingTrace.from_sequences([[[[5]], [[2**30]]]] * 2, num_experts=2**31),
        RoutingTrace(np.array([[[0, 1], [-1, -1]], [[1, -1], [-1, -1]]]), np.array([0, 0]), num_experts=2),
        RoutingTrace(np.array([[[0]], [[-1]], [[-1]]]), np.array([0, 1, 2]), num_experts=2),
    ],
    ids=["one token", "one expert", "pairless", "one sequence", "k is N", "huge ids", "unserved layer", "unserved"],
)
def test_any_trace_is_measured_without_nan_and_in_a_hundred_columns(trace):
    found = measure(trace, windows=[2, 128], lags=[1, 8], segments=[2, 64], resampling=QUICK)
    finite(found)
    for row in found.rows:
        known = [value for value in row.value.per_layer if value is not None]
        assert (row.value.mean is None) == (not known)
    assert max(map(len, table(found).splitlines())) <= 100


def test_an_unserved_layer_is_left_out_and_named():
    ids = routed().expert_ids.copy()
    ids[:, 1] = -1
    trace = RoutingTrace(ids, routed().sequence_ids, 8, layer_names=("0", "mtp.0"))
    found = measure(trace, **FEW)
    assert "layers that served no token are left out of every mean: mtp.0" in found.notes
    entropy = found.find("utilisation_entropy").value
    assert (entropy.mean, entropy.per_layer[1]) == (entropy.per_layer[0], None)
    alone = measure(trace.select(layers=["0"]), **FEW)
    for left, right in zip(found.rows, alone.rows, strict=True):
        assert (left.value.mean, left.chance) == (pytest.approx(right.value.mean), right.chance)


def test_one_sequence_says_what_its_intervals_are_worth():
    assert measure(routed(sequences=1, tokens=70), **FEW).notes[0] == (
        "intervals are drawn over 2 contiguous blocks of 35 tokens of the only sequence: "
        "they tell of this text alone, not of others"
    )
    short = measure(routed(sequences=1), **FEW)
    assert short.notes[0] == "no intervals: one sequence of fewer than 64 tokens is a single observation"
    assert {row.value.interval for row in short.rows} == {None}
    assert (short.resampling, short.drift) == (None, [])


def test_what_is_not_defined_says_what_it_would_take():
    found = measure(routed(), windows=[4, 21], lags=[30], segments=[21], resampling=QUICK)
    assert found.find("working_set", window=21).value.mean is None
    expected = "not defined, for want of at least one pair of tokens 30 apart in one sequence: expert overlap"
    assert expected in found.notes
    expected = (
        "not defined, for want of a run of 21 neighbouring tokens: "
        "working set, segment routing best performance, srp rho hat"
    )
    assert expected in found.notes


def test_intervals_can_be_left_out():
    found = measure(routed(), **FEW, intervals=False)
    assert found.resampling is None
    assert {row.value.interval for row in found.rows} == {None}
    assert "interval" not in table(found)


def test_a_profile_is_measured_as_far_as_counts_go():
    trace = routed(layers=1)
    profile = UsageProfile(np.bincount(trace.expert_ids.ravel(), minlength=8)[None])
    found = measure(profile, capacities=[3])
    whole = measure(trace, **FEW)
    for name in ("utilisation_entropy", "load_variation", "load_busiest"):
        assert found.find(name).value.mean == pytest.approx(whole.find(name).value.mean)
    coverage = found.find("static_coverage", capacity=3)
    assert (coverage.value.mean, coverage.chance) == (metrics.static_coverage(trace, 3)[0], 3 / 8)
    assert found.notes[0].startswith("a profile holds counts without order")
    assert finite(found)["sizes"] == {"layers": 1, "num_experts": 8, "uses": 120}
    assert table(found).startswith("1 layer of 8 experts, 120 uses\n")


def test_a_profile_with_an_unused_layer_leaves_it_out():
    found = measure(UsageProfile(np.array([[2, 2], [0, 0]])))
    assert found.find("utilisation_entropy").value.per_layer == (1.0, None)
    assert "layers that served no token are left out of every mean: 1" in found.notes


def test_the_table_shows_each_value_beside_its_chance():
    found = measure(routed(), **FEW)
    text = table(found)
    assert text.startswith("60 tokens in 3 sequences, 2 layers of 8 experts, top-2\n\nall tokens ")
    (line,) = [line for line in text.splitlines() if line.startswith("expert overlap, lag 1 ")]
    value = found.find("expert_overlap", lag=1).value
    low, high = value.interval
    layers = f"{min(value.per_layer):.3f} .. {max(value.per_layer):.3f}"
    assert line.split() == f"expert overlap, lag 1 {value.mean:.3f} {low:.3f} to {high:.3f} {layers} 0.250".split()
    for words in ("SRP, segment 4", "SCH, segment 4, capacity 2", "lives on", "on the others", "over-fetch", "markov"):
        assert words in text


def test_settings_out_of_range_are_refused_before_anything_is_counted():
    for name in ("windows", "lags", "segments", "capacities"):
        with pytest.raises(SettingError, match=f"{name} must be >= 1, got 0"):
            measure(routed(), **{name: [1, 0]})
        with pytest.raises(SettingError, match=f"{name} must be at least one number"):
            measure(routed(), **{name: []})
    with pytest.raises(SettingError, match=r"measure must be one measured in phase 'all'.*did you mean 'switch_rate'"):
        measure(routed(), **FEW).find("switch")
