"""A run of another architecture: trained, measured, resumed and written on like one of the reference model."""

import hashlib
import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stickymoe.capture import capture_routing
from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.experiments.generation import generate_text
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.run import corpus_of, evaluate_run, train_run
from stickymoe.experiments.run_model import build_model, load_model, load_tokenizer
from stickymoe.traces import RoutingTrace


def weights(run):
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(run / "model" / "model.safetensors").items()}


def naive(model, split, length):
    """Predict token by token, each from its own document's part of its chunk alone; yield what is found at each."""
    for begin in range(0, len(split.tokens) - 1, length):
        for place in range(begin, min(begin + length, len(split.tokens) - 1)):
            first = next(row for row in range(begin, place + 1) if split.document_ids[row] == split.document_ids[place])
            ids = torch.from_numpy(split.tokens[first : place + 1].astype("int64"))[None]
            with torch.no_grad(), capture_routing(model, gradients=False) as capture:
                log_probs = model(input_ids=ids, use_cache=False).logits[0, -1].double().log_softmax(dim=-1)
            gates = torch.stack([layer[0, -1] for layer in capture.routing.gate_probs]).double()
            yield (
                -float(log_probs[int(split.tokens[place + 1])]),
                np.stack([layer[0, -1].numpy() for layer in capture.routing.expert_ids]),
                -(gates * gates.log2()).sum(dim=-1).numpy(),
                gates.topk(2, dim=-1).values.diff(dim=-1)[:, 0].neg().numpy(),
            )


def test_every_measure_equals_a_token_by_token_computation(trained_mixtral, mixtral):
    split = corpus_of(mixtral()).splits["validation"]
    losses, experts, entropies, margins = zip(*naive(load_model(trained_mixtral), split, 16), strict=True)
    result = RunResult.load(trained_mixtral)
    assert result.read.cross_entropy == pytest.approx(np.mean(losses), rel=1e-5)
    assert result.read.perplexity == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
    assert result.read.predicted_tokens == len(losses)
    routing = result.read.routing
    assert routing.gate_entropy_bits.per_layer == pytest.approx(np.mean(entropies, axis=0).tolist(), rel=1e-5)
    assert routing.gate_margin.per_layer == pytest.approx(np.mean(margins, axis=0).tolist(), rel=1e-3)
    trace = RoutingTrace.load(trained_mixtral / "trace-validation.parquet")
    np.testing.assert_array_equal(trace.expert_ids, np.stack(experts))
    np.testing.assert_array_equal(trace.token_ids, split.tokens[:-1])
    np.testing.assert_array_equal(trace.document_ids, split.document_ids[:-1])
    np.testing.assert_allclose(trace.expert_weights.sum(axis=-1), 1, rtol=1e-5)
    assert trace.names == ("0", "1")
    assert set(trace.expert_bytes.tolist()) == {4 * 3 * 16 * 16}


def test_the_metrics_say_what_a_token_uses(trained_mixtral):
    read = RunResult.load(trained_mixtral).read
    idle = 2 * 2 * 3 * 16 * 16  # layers x experts that do not serve it x an expert's three matrices
    total = sum(weight.numel() for weight in load_model(trained_mixtral).parameters())
    assert (read.parameters.total, read.parameters.active) == (total, total - idle)
    assert (read.num_experts, read.top_k, read.num_layers) == (4, 2, 2)


def test_the_size_of_a_batch_changes_no_measure(trained_mixtral, tmp_path, mixtral):
    run = shutil.copytree(trained_mixtral, tmp_path / "run")
    other = evaluate_run(run, "validation", batch_size=3).read
    before = RunResult.load(trained_mixtral).read
    assert other.cross_entropy == pytest.approx(before.cross_entropy, rel=1e-6)
    assert other.routing.switch_rate == before.routing.switch_rate
    with pytest.raises(SettingError, match=r"evaluate\.batch_size must be >= 1, got 0"):
        evaluate_run(run, "validation", batch_size=0)


def test_a_killed_run_resumed_ends_with_the_same_weights(trained_mixtral, mixtral, tmp_path):
    def dies_at_step_six(description, done, total):
        if description.startswith("training") and done == 6:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_run(mixtral(), tmp_path, progress=dies_at_step_six)
    with pytest.raises(SettingError, match=r"of another recipe \(model\.intermediate_size 16 -> 24\)"):
        train_run(mixtral("model.intermediate_size=24"), tmp_path, resume=True)
    train_run(mixtral(), tmp_path, resume=True)
    assert weights(tmp_path) == weights(trained_mixtral)


def test_training_lowers_the_loss_and_logs_the_terms(trained_mixtral):
    log = RunResult.load(trained_mixtral).log
    assert log[-1]["cross_entropy"] < log[0]["cross_entropy"]
    assert log[-1]["consistency"] > 0
    assert len(log[-1]["switch_rate"]) == 2


def test_text_is_the_same_with_a_cache_and_without(trained_mixtral):
    text = generate_text(trained_mixtral, "the union of", 12, temperature=0)
    model, tokenizer = load_model(trained_mixtral), load_tokenizer(trained_mixtral)
    ids = tokenizer("the union of", return_tensors="pt").input_ids
    for _ in range(12):
        with torch.no_grad():
            next_id = model(input_ids=ids, use_cache=False).logits[0, -1].argmax()
        ids = torch.cat([ids, next_id.view(1, 1)], dim=1)
        if int(next_id) == tokenizer.eos_token_id:
            break
    start = len(tokenizer("the union of").input_ids)
    assert text == "the union of" + tokenizer.decode(ids[0, start:], skip_special_tokens=True)


def test_a_run_goes_on_from_a_saved_models_folder(trained_mixtral, bare, tmp_path):
    recipe = bare(f"model.pretrained={trained_mixtral}", "data.tokenizer=auto", "training.steps=2")
    begun = build_model(recipe, 300).state_dict()
    before = load_model(trained_mixtral).state_dict()
    assert all(torch.equal(begun[name].cpu(), before[name].cpu()) for name in before)
    result = train_run(recipe, tmp_path / "on")
    assert result.read.cross_entropy < RunResult.load(trained_mixtral).read.cross_entropy
    assert load_tokenizer(tmp_path / "on").get_vocab() == load_tokenizer(trained_mixtral).get_vocab()
    begun = json.loads((tmp_path / "on" / "train.json").read_text())["start"]
    own = hashlib.sha256((trained_mixtral / "model" / "model.safetensors").read_bytes()).hexdigest()
    assert begun == {"pretrained": str(trained_mixtral), "sha256": {"model.safetensors": own}}
    twice = bare(f"model.pretrained={trained_mixtral}", "data.tokenizer=auto", "training.start_from=x")
    with pytest.raises(SettingError, match=r"training\.start_from must be left out beside model\.pretrained"):
        train_run(twice, tmp_path / "other")
    with pytest.raises(SettingError, match=r"data\.tokenizer must be 'auto' with model\.pretrained"):
        train_run(bare(f"model.pretrained={trained_mixtral}", "data.tokenizer=gpt2"), tmp_path / "other")


def test_routers_alone_are_trained_from_another_run_of_the_same_architecture(trained_mixtral, mixtral, tmp_path):
    shutil.copytree(trained_mixtral, tmp_path / "base")
    recipe = mixtral("training.start_from=base", "training.train_only=routers", "training.steps=2")
    train_run(recipe, tmp_path / "tuned")
    before, after = weights(tmp_path / "base"), weights(tmp_path / "tuned")
    moved = {name for name in before if before[name] != after[name]}
    assert moved == {f"model.layers.{layer}.block_sparse_moe.gate.weight" for layer in range(2)}
    facts = json.loads((tmp_path / "tuned" / "train.json").read_text())
    assert facts["start"]["run"] == "base"
    assert facts["frozen"]["trained"] == [f"model.layers.{layer}.mlp.gate.weight" for layer in range(2)]
    with pytest.raises(CheckpointError, match="of another architecture: intermediate_size 16 there and 24 here"):
        train_run(mixtral("training.start_from=base", "model.intermediate_size=24"), tmp_path / "wide")
