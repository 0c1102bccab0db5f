"""Adapters on attention alone, which change nothing before they are trained."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.experiments.tuning.lora import attention_projections, with_adapters

pytestmark = pytest.mark.hf
IDS = torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("family", "ends"), [
    ("mixtral", {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ("gpt_oss", {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ("deepseek_v3", {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}),
    ("stickymoe", {"qkv_proj", "out_proj"}),
])  # fmt: skip
def test_what_is_adapted_is_in_attention_and_neither_router_nor_expert(small, family, ends):
    names = attention_projections(small.model(family))
    assert {name.rpartition(".")[2] for name in names} == ends
    assert not [name for name in names if any(word in name for word in ("router", "gate", "expert", "mlp", "moe"))]


def test_routers_that_sit_in_attention_are_left_out(small):
    names = attention_projections(small.model("jetmoe"))
    assert not [name for name in names if "router" in name]


def test_adapters_change_nothing_yet_and_are_all_that_peft_lets_learn(small):
    pytest.importorskip("peft")
    model = small.model("mixtral").eval()
    before = model(input_ids=IDS).logits
    adapted, names = with_adapters(model, 4)
    assert torch.equal(adapted(input_ids=IDS).logits, before)
    assert names == sorted(name for name, weight in adapted.named_parameters() if weight.requires_grad)
    assert len(names) == 2 * 4 * 3


def test_a_model_without_linear_layers_in_attention_is_refused(small):
    model = small.model("mixtral")
    for layer in model.model.layers:
        layer.self_attn = torch.nn.Identity()
    with pytest.raises(SettingError, match=r"tune.lora must be 0 for a model without linear layers in its attention"):
        with_adapters(model, 4)
