"""Initialisation: the paper's statistics, reproducible by seed."""

import pytest
import torch

from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM


@pytest.fixture(scope="module")
def fresh():
    torch.manual_seed(0)
    return StickyMoEForCausalLM(
        StickyMoEConfig(vocab_size=3000, hidden_size=64, expert_intermediate_size=128, num_hidden_layers=3)
    )


def assert_normal(weight, std):
    deviation = 5 * std / (2 * weight.numel()) ** 0.5  # five standard errors of a standard deviation
    assert weight.std().item() == pytest.approx(std, abs=deviation)
    assert weight.mean().item() == pytest.approx(0, abs=5 * std / weight.numel() ** 0.5)


def test_weights_are_drawn_with_002_and_residual_projections_smaller(fresh):
    residual = 0.02 / (2 * 3) ** 0.5
    assert_normal(fresh.model.token_embedding.weight, 0.02)
    assert_normal(fresh.model.position_embedding.weight, 0.02)
    for layer in fresh.model.layers:
        assert_normal(layer.attention.qkv_proj.weight, 0.02)
        assert_normal(layer.attention.out_proj.weight, residual)
        assert_normal(layer.moe.router.weight, 0.02)
        assert_normal(layer.moe.experts.up_proj, 0.02)
        assert_normal(layer.moe.experts.down_proj, residual)


def test_norms_start_neutral_and_biases_at_zero(fresh):
    counted = {"one": 0, "zero": 0}
    for name, parameter in fresh.named_parameters():
        if name.endswith("bias") or "proj_bias" in name:
            assert parameter.abs().max() == 0, name
            counted["zero"] += 1
        elif "norm" in name:
            assert (parameter == 1).all(), name
            counted["one"] += 1
    assert counted == {"one": 3 * 2 + 1, "zero": 3 * 6 + 1}


def test_the_width_of_the_start_can_be_chosen(tiny_config):
    torch.manual_seed(0)
    model = StickyMoEForCausalLM(tiny_config(initializer_range=0.5, hidden_size=48))
    assert_normal(model.model.token_embedding.weight, 0.5)
    assert_normal(model.model.layers[1].attention.out_proj.weight, 0.5 / 2)


def test_the_seed_decides_every_weight(tiny_config):
    def weights(seed):
        torch.manual_seed(seed)
        return torch.nn.utils.parameters_to_vector(StickyMoEForCausalLM(tiny_config()).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_experts_start_different_from_one_another(fresh):
    experts = fresh.model.layers[0].moe.experts.up_proj
    assert not torch.equal(experts[0], experts[1])
