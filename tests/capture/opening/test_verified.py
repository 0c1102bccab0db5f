"""Architectures without an adapter: opened where generic hooks fit the model's own output, else refused in one line."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from stickymoe.capture import capture_routing
from stickymoe.capture.opening import open_model
from stickymoe.core.errors import CaptureError

EXPERTS, WIDTH = 6, 8


class HomeConfig(PreTrainedConfig):
    model_type = "home_made_moe"
    weigh: str = "softmax"
    vocab_size: int = 288
    num_attention_heads: int = 1


class Gate(nn.Linear):
    def __init__(self, weigh):
        super().__init__(WIDTH, EXPERTS)
        self.weigh = weigh

    def forward(self, hidden):
        logits = super().forward(hidden)
        weights, ids = logits.softmax(-1).topk(2, dim=-1)
        if self.weigh == "odd":
            weights = weights.sqrt().flip(-1)
        if self.weigh == "twice":
            weights, ids = weights[:, :1].expand(-1, 2), ids[:, :1].expand(-1, 2)
        return logits, weights, ids


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def forward(self, hidden, ids, weights):
        return (torch.einsum("td,tkde->tke", hidden, self.up[ids]) * weights[..., None]).sum(1)


class Block(nn.Module):
    def __init__(self, weigh):
        super().__init__()
        self.gate, self.experts = Gate(weigh), Experts()

    def forward(self, hidden):
        rows = hidden.flatten(0, 1)
        _, weights, ids = self.gate(rows)
        return hidden + self.experts(rows, ids, weights).view_as(hidden)


class HomeForCausalLM(PreTrainedModel):
    config_class = HomeConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, WIDTH)
        self.layers = nn.ModuleList(Block(config.weigh) for _ in range(2))
        self.head = nn.Linear(WIDTH, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, use_cache=None):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return CausalLMOutput(logits=self.head(hidden))


@pytest.fixture
def home_made(tmp_path, tokenizer):
    """A checkpoint of an architecture that transformers was told of and nobody wrote an adapter for."""
    AutoConfig.register(HomeConfig.model_type, HomeConfig)
    AutoModelForCausalLM.register(HomeConfig, HomeForCausalLM)

    def save(weigh):
        torch.manual_seed(0)
        model = HomeForCausalLM(HomeConfig(weigh=weigh))
        for layer in model.layers:
            torch.nn.init.normal_(layer.gate.bias)  # flat gates would fit any rule
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return tmp_path

    yield save
    CONFIG_MAPPING._extra_content.pop(HomeConfig.model_type)
    MODEL_FOR_CAUSAL_LM_MAPPING._extra_content.pop(HomeConfig)


def test_an_architecture_of_the_common_contract_opens_without_an_adapter(home_made):
    opened = open_model(home_made("softmax"), device="cpu")
    with capture_routing(opened.model) as capture:
        opened.model(input_ids=torch.arange(12)[None])
    gate = opened.model.layers[0].gate
    expected = gate(opened.model.embed(torch.arange(12)))[2]
    assert torch.equal(capture.routing.expert_ids[0][0], expected)


@pytest.mark.parametrize(
    ("weigh", "reason"), [("odd", "no known function"), ("twice", "not different experts of a layer")]
)
def test_one_that_departs_from_it_is_refused_and_told_how_to_add_an_adapter(home_made, weigh, reason):
    with pytest.raises(CaptureError, match=reason) as caught:
        open_model(home_made(weigh), device="cpu")
    assert "add a Family" in str(caught.value)
    assert "\n" not in str(caught.value)
