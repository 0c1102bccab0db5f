"""Predictors, beside slow ones that keep dictionaries."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.core.errors import SettingError
from stickymoe.metrics import Resampling, predictor_recall
from stickymoe.metrics.predictors import FOLDS, MOST_MARKOV_EXPERTS
from stickymoe.traces import DECODE, PREFILL, RoutingTrace

EXPERTS, TOP_K = 7, 2


def routed(sequences: int = 9, phases: bool = True) -> RoutingTrace:
    """Sequences of which the first three tokens are the prompt; some tokens are unserved by some layers."""
    rng = default_rng(1)
    taste = rng.random((sequences, 1, 3, EXPERTS)) + rng.random((sequences, 8, 3, EXPERTS))
    ids = np.argsort(taste, axis=-1)[..., :TOP_K]
    ids[rng.random(ids.shape[:3]) < 0.1] = -1
    ids[:, 0] = [0, 1]
    phase = np.tile(np.repeat([PREFILL, DECODE], [3, 5]), sequences)
    return RoutingTrace(
        ids.reshape(-1, 3, TOP_K), np.arange(sequences * 8) // 8, EXPERTS, phases=phase if phases else None
    )


def slow(trace: RoutingTrace, name: str, budget: int) -> tuple[float, float]:
    """Recall and over-fetch by predicting one token of one layer at a time."""
    rows, sequence = trace.expert_ids.tolist(), trace.sequence_ids.tolist()
    sets = [[[e for e in slots if e >= 0] for slots in layers] for layers in rows]
    fold = [each % min(FOLDS, trace.num_sequences) for each in sequence]
    needed = hits = predicted = 0
    for layer in range(trace.num_layers):
        flat = [e for layers in sets for e in layers[layer]]
        for t in range(1, len(sets)):
            if sequence[t] != sequence[t - 1] or (trace.phases is not None and trace.phases[t] == PREFILL):
                continue
            learned = [r for r in range(len(sets)) if fold[r] != fold[t]]
            counts = Counter(e for r in learned for e in sets[r][layer])
            score: dict[int, np.float32] = defaultdict(np.float32)
            if name == "previous":
                mine = [e for r in range(t) if sequence[r] == sequence[t] for e in sets[r][layer]]
                guess = list(dict.fromkeys(reversed(mine)))
            elif name == "prompt":
                prompt = [r for r in range(t) if sequence[r] == sequence[t] and trace.phases[r] == PREFILL]
                counts = Counter(e for r in prompt for e in sets[r][layer])
                guess = sorted(counts, key=lambda e: (-counts[e], flat.index(e)))
            else:
                back, up = (1, 0) if name == "markov" else (0, 1)
                if name != "static" and layer >= up:
                    for e in sets[t - back][layer - up]:
                        pairs = [
                            r
                            for r in learned
                            if (not back or (r > 0 and sequence[r] == sequence[r - 1]))
                            and e in sets[r - back][layer - up]
                        ]
                        for other in counts:
                            share = sum(other in sets[r][layer] for r in pairs) / max(1, len(pairs))
                            # Sums that round differently are no ties: the same arithmetic as the kernel's.
                            score[other] += np.float32(share)
                guess = sorted(counts, key=lambda e: (-score[e], -counts[e], flat.index(e)))
            needed += len(sets[t][layer])
            hits += len(set(guess[:budget]) & set(sets[t][layer]))
            predicted += len(guess[:budget]) if sets[t][layer] else 0
    return hits / needed, (predicted - hits) / needed


@pytest.mark.parametrize("phases", [True, False])
@pytest.mark.parametrize("name", ["previous", "static", "markov", "next-layer", "prompt"])
def test_recall_and_over_fetch_equal_those_of_a_slow_predictor(name, phases):
    trace = routed(phases=phases)
    for found in predictor_recall(trace, [1, 3, EXPERTS]):
        if found.predictor == name and not found.without:
            recall, over_fetch = slow(trace, name, found.budget)
            assert found.recall.mean == pytest.approx(recall, abs=1e-12)
            assert found.over_fetch.mean == pytest.approx(over_fetch, abs=1e-12)
            assert found.chance == found.budget / EXPERTS


def by_name(trace: RoutingTrace, budget: int) -> dict[str, float | None]:
    return {each.predictor: each.recall and each.recall.mean for each in predictor_recall(trace, [budget])}


def test_a_cycle_is_known_to_markov_and_to_no_other():
    cycle = np.arange(40) % 4
    trace = RoutingTrace.from_sequences([cycle[:, None, None]] * 3, num_experts=4)
    found = by_name(trace, 1)
    assert (found["markov"], found["previous"]) == (1.0, 0.0)
    assert found["static"] == pytest.approx(0.25, abs=0.03)


def test_a_layer_that_repeats_the_one_below_is_known_to_next_layer():
    ids = default_rng(0).integers(0, 6, (4, 50, 1, 1)).repeat(2, axis=2)
    found = predictor_recall(RoutingTrace.from_sequences(ids, num_experts=6), [1])
    (deeper,) = [each for each in found if each.predictor == "next-layer"]
    assert deeper.recall.per_layer[1] == 1.0
    assert deeper.recall.per_layer[0] < 0.5


def test_random_routing_is_recalled_by_chance():
    ids = np.argsort(default_rng(0).random((8, 1000, 2, 16)), axis=-1)[..., :2]
    for name, recall in by_name(RoutingTrace.from_sequences(ids, num_experts=16), 4).items():
        if recall is not None:
            assert recall == pytest.approx(0.25, abs=0.02), name


def test_a_budget_of_all_experts_finds_all():
    trace = RoutingTrace.from_sequences([[[[0, 1]]] * 4] * 2, num_experts=2)
    for found in predictor_recall(trace, [2, 5]):
        if not found.without:
            assert (found.recall.mean, found.over_fetch.mean, found.chance) == (1.0, 0.0, 1.0)


def test_other_names_for_the_experts_change_nothing():
    trace = routed()
    renamed = RoutingTrace(
        np.append(default_rng(0).permutation(EXPERTS), -1)[trace.expert_ids],
        trace.sequence_ids,
        EXPERTS,
        phases=trace.phases,
    )
    assert by_name(renamed, 2) == by_name(trace, 2)


def test_what_cannot_be_tried_says_why():
    short = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    reasons = {each.predictor: each.without for each in predictor_recall(short, [1])}
    assert reasons == {
        "previous": "",
        "static": "one short sequence leaves nothing to learn from",
        "markov": "one short sequence leaves nothing to learn from",
        "next-layer": "one short sequence leaves nothing to learn from",
        "prompt": "the trace does not tell prompt from decoded tokens",
    }
    wide = RoutingTrace.from_sequences([[[[0]], [[1]]]] * 2, num_experts=MOST_MARKOV_EXPERTS + 1)
    reasons = {each.predictor: each.without for each in predictor_recall(wide, [1])}
    assert reasons["markov"] == "transition tables of more than 1024 experts are not built"
    assert reasons["static"] == ""
    alone = RoutingTrace.from_sequences([[[[0]]], [[[1]]]], num_experts=2)
    assert {each.without for each in predictor_recall(alone, [1]) if each.predictor == "static"} == {
        "no tokens with a neighbour before them"
    }
    narrow = RoutingTrace.from_sequences([[[[0]], [[1]]]] * 2, num_experts=2)
    assert [each.without for each in predictor_recall(narrow, [1])][3] == "there is one layer"


def test_budgets_out_of_range_are_refused():
    with pytest.raises(SettingError, match="budget must be >= 1, got 0"):
        predictor_recall(routed(), [0])
    with pytest.raises(SettingError, match="budgets must be at least one number of experts"):
        predictor_recall(routed(), [])


def test_intervals_are_drawn_over_sequences():
    found = predictor_recall(routed(), [2], resampling=Resampling(resamples=50))
    for each in found:
        assert each.recall.interval[0] < each.recall.mean < each.recall.interval[1]
        assert each.over_fetch.interval is not None
