"""Architectures without an adapter: tried by the common contract, verified against themselves, or refused in a line."""

import pytest
import torch
from torch import nn

from stickymoe.capture import capture_routing
from stickymoe.core.errors import CaptureError


class Gate(nn.Module):
    """A router as the common contract wants it; `answer` says what it returns instead."""

    def __init__(self, score, answer):
        super().__init__()
        self.linear = nn.Linear(8, 6)
        self.score, self.answer = score, answer

    def forward(self, hidden):
        logits = self.linear(hidden.flatten(0, 1))
        scores = logits.sigmoid() if self.score == "sigmoid" else logits.softmax(-1)
        if self.score == "odd":
            scores = scores.sqrt()
        weights, ids = scores.topk(2, dim=-1)
        weights = 2.5 * weights / weights.sum(-1, keepdim=True)
        return (ids, weights) if self.answer == "no logits" else (logits, weights, ids)


class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8, 8))

    def forward(self, hidden, ids, weights):
        each = torch.einsum("td,edf->tef", hidden, self.weight)
        return (each.gather(1, ids[..., None].expand(-1, -1, 8)) * weights[..., None]).sum(1)


class Block(nn.Module):
    def __init__(self, score, answer):
        super().__init__()
        self.gate, self.experts = Gate(score, answer), Bank()

    def forward(self, hidden):
        *_, first, second = self.gate(hidden)
        ids, weights = (first, second) if second.is_floating_point() else (second, first)
        return hidden + self.experts(hidden.flatten(0, 1), ids, weights).view_as(hidden)


class HomeMade(nn.Module):
    def __init__(self, score="softmax", answer="all"):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(64, 8)
        self.layers = nn.ModuleList(Block(score, answer) for _ in range(2))

    def forward(self, input_ids, attention_mask=None):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_a_home_made_model_of_the_common_contract_is_captured_and_its_gate_found_out(score, token_ids):
    model = HomeMade(score)
    with capture_routing(model) as capture:
        model(token_ids(2, 5), attention_mask=torch.tensor([[0, 1, 1, 1, 1], [1] * 5]))
    routing = capture.routing
    assert capture.last.layer_names == ("0", "1")
    assert capture.layers[0].family.gate == score
    assert routing.token_mask.sum() == 9
    for logits, gates, ids in zip(routing.router_logits, routing.gate_probs, routing.expert_ids, strict=True):
        scores = logits.sigmoid() if score == "sigmoid" else logits.exp()
        torch.testing.assert_close(gates, scores / scores.sum(-1, keepdim=True))
        assert torch.equal(ids, logits.topk(2).indices)
    assert routing.gate_probs[1].requires_grad


def test_weights_that_no_known_gate_explains_are_refused(token_ids):
    model = HomeMade("odd")
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
    with pytest.raises(CaptureError, match=r"no adapter.*no known function of its router's output.*docs/models.md"):
        _ = capture.routing


def test_a_router_that_hides_its_logits_is_refused(token_ids):
    model = HomeMade(answer="no logits")
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
    with pytest.raises(CaptureError, match="returns no logits"):
        _ = capture.routing


def test_experts_called_one_by_one_are_refused(token_ids):
    model = HomeMade()
    for layer in model.layers:
        layer.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        layer.forward = lambda hidden, layer=layer: hidden + layer.experts[0](hidden) + 0 * layer.gate(hidden)[0].sum()
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
    with pytest.raises(CaptureError, match="do not receive the ids"):
        _ = capture.routing


def test_a_model_of_transformers_that_is_not_known_yet_is_tried_the_same_way(build, token_ids, monkeypatch):
    from stickymoe.capture.families import FAMILIES

    expected_model = build("deepseek_v3")
    with capture_routing(expected_model) as capture:
        expected_model(token_ids(1, 6))
    expected = capture.routing
    monkeypatch.delitem(FAMILIES, "deepseek_v3")
    model = build("deepseek_v3")
    with capture_routing(model) as capture:
        model(token_ids(1, 6))
    assert [layer.family.gate for layer in capture.layers] == ["", ""]
    for got, wanted in zip(capture.routing.gate_probs, expected.gate_probs, strict=True):
        assert torch.equal(got, wanted)
    assert [layer.family.gate for layer in capture.layers] == ["sigmoid", "sigmoid"]
