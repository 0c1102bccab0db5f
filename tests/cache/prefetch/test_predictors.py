"""Predictors beside slow ones that look only at a list of what is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.cache.prefetch import PREDICTORS, predict
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace

patient = settings(deadline=None, max_examples=60)
EXPERTS = 5


@st.composite
def traces(draw) -> RoutingTrace:
    tokens, layers, top_k = draw(st.integers(1, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, EXPERTS)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0] = np.maximum(filled[0], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    return RoutingTrace(ids, np.sort(rng.integers(0, 3, tokens)), EXPERTS)


def chosen(trace: RoutingTrace, t: int, layer: int) -> list[int]:
    return [int(expert) for expert in trace.expert_ids[t, layer] if expert >= 0]


def best(score: dict[int, float], width: int) -> list[int]:
    return sorted((e for e in score if score[e] > 0), key=lambda e: (-score[e], e))[:width]


def slowly(trace: RoutingTrace, name: str, t: int, layer: int, lookahead: int, width: int) -> list[int]:
    """Guess what event (t, layer) asks for; only events up to `lookahead` before it may be looked at."""
    layers = trace.num_layers
    now = t * layers + layer - lookahead
    same = trace.sequence_ids == trace.sequence_ids[t]
    back = next(m for m in range(1, t * layers + lookahead + 2) if (t - m) * layers + layer <= now)
    if name == "oracle":
        return chosen(trace, t, layer)[:width]
    if name == "frequency":
        score = dict.fromkeys(range(EXPERTS), 0.0)
        for row in range(t - back + 1):
            for expert in chosen(trace, row, layer):
                score[expert] += 1
        return best(score, width)
    offset = lookahead if name == "next-layer" else back * layers
    source = t * layers + layer - offset
    if source < 0 or not same[source // layers]:
        return []
    if name == "previous-token":
        return chosen(trace, source // layers, source % layers)[:width]
    counts = np.zeros((EXPERTS, EXPERTS))
    occurrences = np.zeros(EXPERTS)
    for row in range(t - back + 1):
        earlier = row * layers + layer - offset
        if earlier < 0 or trace.sequence_ids[earlier // layers] != trace.sequence_ids[row]:
            continue
        for before in chosen(trace, earlier // layers, earlier % layers):
            occurrences[before] += 1
            counts[before, chosen(trace, row, layer)] += 1
    score = dict.fromkeys(range(EXPERTS), 0.0)
    for before in chosen(trace, source // layers, source % layers):
        if occurrences[before]:
            for expert in range(EXPERTS):
                score[expert] += counts[before, expert] / occurrences[before]
    return best(score, width)


@pytest.mark.parametrize("name", sorted(PREDICTORS))
@patient
@given(trace=traces(), lookahead=st.integers(1, 7), width=st.integers(1, 6))
def test_predictions_equal_those_of_a_slow_predictor(name, trace, lookahead, width):
    found = predict(trace, name, lookahead=lookahead, width=width)
    assert found.shape[:2] == trace.expert_ids.shape[:2]
    for t in range(trace.num_tokens):
        for layer in range(trace.num_layers):
            guesses = found[t, layer].tolist()
            expected = slowly(trace, name, t, layer, lookahead, min(width, EXPERTS))
            assert guesses == expected + [-1] * (len(guesses) - len(expected))


@pytest.mark.parametrize("name", sorted(set(PREDICTORS) - {"oracle"}))
@patient
@given(trace=traces(), lookahead=st.integers(1, 7), data=st.data())
def test_no_predictor_but_the_oracle_sees_the_future(name, trace, lookahead, data):
    event = data.draw(st.integers(0, trace.num_tokens * trace.num_layers - 1))
    t, layer = divmod(event, trace.num_layers)
    ids = trace.expert_ids.copy().reshape(-1, trace.top_k)
    unknown = slice(max(0, event - lookahead + 1), None)
    ids[unknown] = np.where(ids[unknown] < 0, -1, EXPERTS - 1 - ids[unknown])
    changed = RoutingTrace(ids.reshape(trace.expert_ids.shape), trace.sequence_ids, EXPERTS)
    before, after = (predict(each, name, lookahead=lookahead)[t, layer] for each in (trace, changed))
    assert before.tolist() == after.tolist()


def test_next_layer_learns_a_fixed_wiring_after_one_token():
    # layer 1 always runs the expert after layer 0's
    ids = [[[[e], [(e + 1) % 3]] for e in (0, 1, 2, 0, 1, 2)]]
    trace = RoutingTrace.from_sequences(ids, num_experts=3)
    assert predict(trace, "next-layer")[:, 1, 0].tolist() == [-1, -1, -1, 1, 2, 0]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"predictor": "markow"}, "prefetch.predictor must be one of .* did you mean 'markov'"),
        ({"lookahead": 0}, "prefetch.lookahead must be >= 1"),
        ({"width": 0}, "prefetch.width must be >= 1"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(broken, words):
    trace = RoutingTrace.from_sequences([[[[0]]]], num_experts=2)
    with pytest.raises(SettingError, match=words):
        predict(trace, **({"predictor": "oracle"} | broken))


def test_a_table_of_transitions_that_would_not_fit_is_refused():
    trace = RoutingTrace.from_sequences([[[[2**20]]]], num_experts=2**21)
    assert predict(trace, "oracle").tolist() == [[[2**20]]]
    with pytest.raises(SettingError, match="previous-token or oracle above 8192 experts"):
        predict(trace, "markov")
