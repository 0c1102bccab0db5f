"""What a model predicts and routes, token by token, against the model run on each sequence alone."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.capture.opening import open_model
from stickymoe.capture.recording import find_texts, plan_prompts
from stickymoe.core.errors import CaptureError
from stickymoe.experiments.comparing.reading import read_text

pytestmark = pytest.mark.hf


def sequences(trace):
    return [(first, trace.token_ids[first:last].tolist()) for first, last in pairwise(trace.sequence_starts())]


def test_every_tokens_cross_entropy_is_that_of_the_sequence_alone(pair, models):
    for name, subject in (("a", pair.first), ("b", pair.second)):
        model = open_model(models / name, device="cpu").model
        for first, tokens in sequences(subject.trace):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([tokens])).logits[0]
            assert math.isnan(subject.values.cross_entropy[first])
            for place in range(1, len(tokens)):
                expected = -logits[place - 1].log_softmax(-1)[tokens[place]]
                assert subject.values.cross_entropy[first + place] == pytest.approx(float(expected), rel=1e-4)


def test_entropy_and_margin_are_those_of_the_gates(pair, models):
    model = open_model(models / "a", device="cpu").model
    first, tokens = sequences(pair.first.trace)[1]
    with torch.no_grad(), capture_routing(model) as capture:
        model(input_ids=torch.tensor([tokens]))
    for layer, gates in enumerate(capture.routing.gate_probs):
        for place, row in enumerate(gates[0].double().numpy()):
            entropy = -sum(gate * math.log2(gate) for gate in row)
            largest, next_one = sorted(row)[:-3:-1]
            assert pair.first.values.gate_entropy_bits[first + place, layer] == pytest.approx(entropy, rel=1e-4)
            assert pair.first.values.gate_margin[first + place, layer] == pytest.approx(largest - next_one, abs=1e-5)


@pytest.mark.parametrize("broken", [float("nan"), float("-inf")])
def test_predictions_that_are_no_numbers_end_the_comparison(models, records, broken):
    opened = open_model(models / "a", device="cpu")
    opened.model.lm_head.register_forward_hook(lambda *given: given[2].index_fill(-1, torch.tensor([67]), broken))
    prompts = plan_prompts(find_texts(records), opened.tokenizer, length=24)
    assert any(67 in prompt.token_ids[1:] for prompt in prompts.sequences)
    with pytest.raises(CaptureError, match="no finite probability"):
        read_text(opened, prompts, 4, "reading")


def test_both_read_the_same_tokens_and_traces_without_tokens_are_no_pair(pair):
    assert pair.is_paired
    assert np.array_equal(pair.first.trace.token_ids, pair.second.trace.token_ids)
    bare = dataclasses.replace(pair.first.trace, token_ids=None)
    assert not dataclasses.replace(pair, first=dataclasses.replace(pair.first, trace=bare)).is_paired
    other = dataclasses.replace(pair.first.trace, token_ids=pair.first.trace.token_ids + 1)
    assert not dataclasses.replace(pair, first=dataclasses.replace(pair.first, trace=other)).is_paired
