"""Figures and differences of two subjects against loops, against the replays, and against themselves."""

import dataclasses
import json
import math

import numpy as np
import pytest

from stickymoe.cache import hit_rate_curve
from stickymoe.core.errors import TraceError
from stickymoe.experiments.comparing.catalogue import SHARES, lru_hits, slots_of
from stickymoe.experiments.comparing.comparison import compare
from stickymoe.experiments.comparing.parallel import busiest_of_a_pass, pass_loads, pass_units
from stickymoe.experiments.comparing.subject import Pair, Subject
from stickymoe.experiments.comparing.table import MOST_LINES, WIDTH, summary
from stickymoe.metrics import expert_overlap, paired_difference, switch_rate
from stickymoe.metrics.units import whole
from stickymoe.traces import RoutingTrace

pytestmark = pytest.mark.hf


def test_perplexity_is_of_all_predicted_tokens_and_its_difference_of_the_same_units(pair, found):
    means = [float(np.nanmean(each.values.cross_entropy.astype(np.float64))) for each in (pair.first, pair.second)]
    line = found.find("perplexity")
    assert (line.first.value, line.second.value) == pytest.approx([math.exp(mean) for mean in means], rel=1e-6)
    assert line.difference.value == pytest.approx(math.exp(means[1] - means[0]) - 1, rel=1e-5)
    assert line.difference.low < line.difference.value < line.difference.high


def test_locality_is_what_the_metrics_say(pair, found):
    for name, measure in (("switch_rate", switch_rate), ("expert_overlap", expert_overlap)):
        line = found.find(name)
        assert line.first.value == pytest.approx(measure(pair.first.trace).mean())
        assert line.layers[1] == pytest.approx(measure(pair.second.trace))
        expected = paired_difference(pair.first.trace, pair.second.trace, name)
        assert (line.difference.value, line.difference.low, line.difference.high) == pytest.approx(
            (expected.mean, expected.low, expected.high)
        )


def test_hit_rates_are_those_of_the_replay_at_each_share(pair, found):
    for share in SHARES:
        slots = slots_of(share, 16)
        for policy in ("lru", "belady"):
            line = found.find(f"{policy}_hit_rate_{share:g}")
            for side, trace in ((line.first, pair.first.trace), (line.second, pair.second.trace)):
                assert side.value == pytest.approx(hit_rate_curve(trace, policy, [slots])[0].hit_rate)
    lru, belady = found.curves[1]
    assert lru.capacities == tuple(range(1, 17))
    assert all(belady.at(slots) >= lru.at(slots) for slots in belady.capacities)


def test_a_pass_waits_for_its_busiest_expert():
    # pass 0: expert 0 three times, 1 once; pass 1: each of 0..3 once
    ids = np.array([[[0]], [[0]], [[0]], [[1]], [[0]], [[1]], [[2]], [[3]]])
    trace = RoutingTrace(ids, np.zeros(8, int), 4, event_ids=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    sums = pass_loads(4)(trace, 0, pass_units(trace))
    assert sums.tolist() == [[3, 1], [1, 1]]
    assert busiest_of_a_pass(4).of(sums.sum(axis=0)) == 2.0
    assert pass_loads(2)(trace, 0, pass_units(trace)).tolist() == [[4, 2], [2, 2]]


@pytest.mark.parametrize("groups", [8, 16])
def test_loads_of_passes_are_those_of_a_loop(groups):
    random = np.random.default_rng(0)
    ids = np.argsort(random.random((60, 2, 16)), axis=-1)[..., :3]
    ids[5, 1, 2] = -1
    events = np.sort(random.integers(0, 7, 60)) * 3  # numbers with gaps
    trace = RoutingTrace(ids, np.zeros(60, int), 16, event_ids=events)
    for layer in range(2):
        busiest = total = 0
        for event in set(events.tolist()):
            loads = [0] * groups
            for row in np.flatnonzero(events == event):
                for expert in ids[row, layer]:
                    if expert >= 0:
                        loads[expert * groups // 16] += 1
            busiest += max(loads)
            total += sum(loads)
        sums = pass_loads(groups)(trace, layer, pass_units(trace)).sum(axis=0)
        assert busiest_of_a_pass(groups).of(sums) == pytest.approx(busiest * groups / total)


def test_hits_counted_by_distance_are_those_of_the_replay(pair):
    trace = pair.second.trace
    for capacity in (1, 2, 3, 7, 16):
        sums = sum(lru_hits(capacity)(trace, layer, whole(trace)) for layer in range(trace.num_layers))[0]
        report = hit_rate_curve(trace, "lru", [capacity])[0]
        assert sums.tolist() == [report.hits, report.lookups]


def test_a_subject_compared_with_itself_differs_in_nothing(pair):
    same = compare(dataclasses.replace(pair, second=pair.first))
    for line in same.lines:
        assert line.difference.value == pytest.approx(0, abs=1e-12)
        assert line.difference.low in (None, pytest.approx(0, abs=1e-12))
    assert all(document.change == 0 for document in same.documents)
    assert "no clearly different share" in " ".join(summary(same))


def test_documents_put_together_are_the_whole(found, pair):
    tokens = [each.tokens for each in found.documents]
    assert sum(tokens) == np.isfinite(pair.first.values.cross_entropy).sum()
    nats = sum(each.tokens * math.log(each.second) for each in found.documents) / sum(tokens)
    assert math.exp(nats) == pytest.approx(found.find("perplexity").second.value, rel=1e-5)
    assert [each.name for each in found.documents] == [f"records:{number}" for number in range(1, 5)]


def test_traces_without_a_common_text_have_differences_and_no_intervals(pair):
    bare = [dataclasses.replace(each.trace, token_ids=None, event_ids=None) for each in (pair.first, pair.second)]
    found = compare(Pair(Subject("one", bare[0]), Subject("other", bare[1].head(90))))
    assert not found.has("perplexity")
    assert not found.has("pass_busiest")
    assert all(line.difference.low is None for line in found.lines)
    assert "no intervals" in found.notes[0]
    assert found.documents == []
    assert summary(found)


def test_models_of_other_width_are_told_what_chance_would_give(pair):
    wide = pair.first.trace
    narrow = RoutingTrace(np.zeros_like(wide.expert_ids) + np.array([0, 1]), wide.sequence_ids, 4)
    found = compare(Pair(Subject("wide", wide), Subject("narrow", narrow)))
    assert "share 12.5 % of their experts under A, 50.0 % under B" in found.notes[-1]


def test_sequences_of_one_token_have_no_locality_to_compare(pair):
    one = Subject("one", pair.first.trace.head(1))
    with pytest.raises(TraceError, match="two tokens or more"):
        compare(Pair(one, one))


def test_the_summary_fits_a_screen_and_names_every_figure(found):
    lines = summary(found)
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= WIDTH for line in lines)
    text = "\n".join(lines)
    for line in found.lines:
        assert line.label in text


def test_the_json_has_every_number_and_no_nan(found):
    told = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert {figure["name"] for figure in told["figures"]} >= {
        "perplexity",
        "switch_rate",
        "gate_margin",
        "lru_hit_rate_0.25",
        "pass_busiest",
        "pass_busiest_device",
        "recall_previous",
        "recall_next-layer",
    }
    assert told["curves"]["first"][0]["policy"] == "lru"
