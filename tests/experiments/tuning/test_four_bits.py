"""Weights that bitsandbytes holds in four bits: gradients pass them, tuning leaves them and saves them as they came."""

import importlib.util
import json

import pytest
import torch

from stickymoe.capture.opening import open_model
from stickymoe.data.samples import load_samples
from stickymoe.experiments.tuning.tune import tune
from stickymoe.training import fingerprint, train_routers_only

pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed"),
]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


@pytest.fixture
def quantised(small, tmp_path):
    """A folder whose attention is in four bits, as transformers saves it."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tmp_path / "quantised"
    plain = small.open(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, head_dim=32)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(plain.folder, quantization_config=config, device_map="cpu")
    model.save_pretrained(folder)
    plain.tokenizer.save_pretrained(folder)
    return folder


def with_experts_in_four_bits(model):
    from bitsandbytes.nn.parametrize import replace_parameter_4bit

    for layer in model.model.layers:
        for name in ("gate_up_proj", "down_proj"):
            replace_parameter_4bit(layer.mlp.experts, name, quant_type="nf4")


def unpacked(model, twin):
    """Give a plain model the weights that the quantised one computes with."""
    from bitsandbytes.functional import dequantize_4bit

    twin.load_state_dict(
        {name: value for name, value in model.state_dict().items() if value.is_floating_point()}, strict=False
    )
    with torch.no_grad():
        for layer, other in zip(model.model.layers, twin.model.layers, strict=True):
            for name in ATTENTION:
                packed = getattr(layer.self_attn, name).weight
                getattr(other.self_attn, name).weight.copy_(dequantize_4bit(packed.data, packed.quant_state))
            for name in ("gate_up_proj", "down_proj"):
                getattr(other.mlp.experts, name).copy_(getattr(layer.mlp.experts, name))
    return twin


def test_routers_get_the_gradient_of_the_unpacked_weights_also_after_an_evaluation(small, quantised):
    model = open_model(quantised, device="cpu", for_training=True).model
    twin = small.model(hidden_size=64, num_attention_heads=2, num_key_value_heads=2, head_dim=32)
    with_experts_in_four_bits(model)
    kinds = {name.rpartition(".")[2]: value.dtype for name, value in model.named_parameters() if "experts" in name}
    assert kinds == {"original": torch.uint8}
    chosen = train_routers_only(model)
    others = fingerprint(model, without=chosen)
    ids = torch.arange(3, 35)[None]
    model.eval()
    with torch.no_grad():
        model(input_ids=ids)
    found = []
    for each in (model, unpacked(model, twin)):
        each.train()
        each(input_ids=ids, labels=ids).loss.backward()
        found.append([each.get_parameter(name).grad for name in chosen])
    for one, other in zip(*found, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert fingerprint(model, without=chosen) == others


def test_a_checkpoint_in_four_bits_is_tuned_and_saved_in_four_bits(small, quantised, tmp_path):
    opened = open_model(quantised, device="cpu", for_training=True)
    result = tune(opened, load_samples(small.text), tmp_path / "out", small.settings(control=False))
    gates = [f"model.layers.{layer}.block_sparse_moe.gate.weight" for layer in range(3)]
    assert result.content["on_disk"]["changed"] == gates
    assert result.content["on_disk"]["missing"] == []
    again = open_model(tmp_path / "out" / "model", device="cpu").model
    for layer in again.model.layers:
        assert {type(getattr(layer.self_attn, name)).__name__ for name in ATTENTION} == {"Linear4bit"}


def test_what_cannot_be_written_back_is_said_and_the_rest_is_kept(small, quantised, tmp_path, monkeypatch):
    opened = open_model(quantised, device="cpu", for_training=True)

    def refuse(self, *args, **kwargs):
        raise NotImplementedError

    monkeypatch.setattr(type(opened.model), "save_pretrained", refuse)
    said, out = [], tmp_path / "out"
    result = tune(opened, load_samples(small.text), out, small.settings(control=False), say=said.append)
    assert said[-1].startswith("the tuned model is not saved, since transformers cannot write its quantised weights")
    assert said[-1].endswith("out/tuned/chosen.safetensors")
    assert (out / "tuned" / "chosen.safetensors").is_file()
    assert json.loads((out / "tuning.json").read_text())["on_disk"] is None
    assert not list(out.glob("*model*"))
    assert result.proof.moved
