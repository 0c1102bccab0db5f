"""Tiny models of the families that most people use, and the consistency of their routing written out as loops."""

import functools

import pytest
import torch

from stickymoe.capture.tiny import tiny_model
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM

build_once = functools.cache(tiny_model)
MAIN = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "stickymoe"]


def build_model(family, seed=0):
    if family != "stickymoe":
        return tiny_model(family, seed)
    torch.manual_seed(seed)
    sizes = {"vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = StickyMoEConfig(**sizes, expert_intermediate_size=8, max_position_embeddings=64, initializer_range=0.3)
    return StickyMoEForCausalLM(config).eval()


@pytest.fixture
def build():
    return build_model


@pytest.fixture
def shared():
    """One model of a family for all tests that change nothing in it."""
    return build_once


@pytest.fixture(params=MAIN)
def main_model(request):
    return build_model(request.param)


@pytest.fixture
def token_ids():
    def draw(*shape, seed=0):
        return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(seed))

    return draw


@pytest.fixture
def slow_consistency():
    """Mean over layers of the squared distance between neighbours' gates, pair by pair, for pairs of (row, t)."""

    def measure(gates, pairs):
        layers = []
        for layer in gates:
            distances = [(layer[row, t] - layer[row, t - 1]).pow(2).sum() for row, t in pairs]
            layers.append(sum(distances) / len(distances))
        return sum(layers) / len(layers)

    return measure


@pytest.fixture
def gradients_of():
    def collect(model, loss):
        model.zero_grad()
        loss.backward()
        return {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.grad is not None}

    return collect
