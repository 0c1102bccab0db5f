"""A tiny model to take apart, and the same model written as loops over tokens, heads and experts."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM

TINY = {
    "vocab_size": 37,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "expert_intermediate_size": 10,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,  # wide enough for routing and attention to depend on the tokens
}


@pytest.fixture
def tiny_config():
    return lambda **overrides: StickyMoEConfig(**{**TINY, **overrides})


@pytest.fixture
def tiny_model(tiny_config):
    """Build a seeded tiny model; biases and norms are moved off their neutral start so that mistakes in them show."""

    def build(dtype=torch.float32, seed=0, **overrides):
        torch.manual_seed(seed)
        model = StickyMoEForCausalLM(tiny_config(**overrides))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "bias" in name or "norm" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        return model.to(dtype)

    return build


@pytest.fixture
def token_ids():
    def draw(*shape, seed=0):
        return torch.randint(0, TINY["vocab_size"], shape, generator=torch.Generator().manual_seed(seed))

    return draw


@pytest.fixture
def naive_experts():
    """Return the loop over tokens and slots that `Experts.forward` must equal, gradients included."""

    def forward(experts, hidden, expert_ids, weights):
        rows = []
        for token in range(len(hidden)):
            row = torch.zeros_like(hidden[token])
            for slot in range(expert_ids.shape[1]):
                e = int(expert_ids[token, slot])
                inner = torch.nn.functional.gelu(experts.up_proj[e] @ hidden[token] + experts.up_proj_bias[e])
                row = row + weights[token, slot] * (experts.down_proj[e] @ inner + experts.down_proj_bias[e])
            rows.append(row)
        return torch.stack(rows) if rows else hidden * 0

    return forward


@pytest.fixture
def naive_logits(naive_experts):
    """Return a function from one unpadded sequence to its logits and expert ids, written from the definitions."""

    def route(router, hidden):
        probs = (hidden @ router.weight.T).softmax(dim=-1)
        ids = probs.argsort(dim=-1, descending=True)[:, : router.top_k]
        weights = probs.gather(1, ids)
        return ids, weights / weights.sum(dim=1, keepdim=True) if router.norm_topk_prob else weights

    def attend(layer, hidden):
        queries, keys, values = layer.qkv_proj(hidden).chunk(3, dim=-1)
        width = hidden.shape[1] // layer.num_heads
        rows = []
        for token in range(len(hidden)):
            heads = []
            for head in range(layer.num_heads):
                part = slice(head * width, (head + 1) * width)
                scores = keys[: token + 1, part] @ queries[token, part] / width**0.5
                heads.append(scores.softmax(dim=0) @ values[: token + 1, part])
            rows.append(torch.cat(heads))
        return layer.out_proj(torch.stack(rows))

    def forward(model, ids):
        body = model.model
        hidden = body.token_embedding.weight[ids] + body.position_embedding.weight[: len(ids)]
        chosen = []
        for layer in body.layers:
            hidden = hidden + attend(layer.attention, layer.attention_norm(hidden))
            normed = layer.moe_norm(hidden)
            expert_ids, weights = route(layer.moe.router, normed)
            hidden = hidden + naive_experts(layer.moe.experts, normed, expert_ids, weights)
            chosen.append(expert_ids)
        return body.final_norm(hidden) @ body.token_embedding.weight.T, chosen

    return forward


class MadeTensors(TorchDispatchMode):
    """Notes elements and bytes of every tensor that operations return, whether or not it is freed in between."""

    def __init__(self):
        super().__init__()
        self.elements, self.bytes = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements.append(tensor.numel())
                self.bytes.append(tensor.nbytes)
        return result


@pytest.fixture
def made_tensors():
    return MadeTensors
