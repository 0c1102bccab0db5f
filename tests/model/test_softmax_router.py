"""Token choice: worked by hand, in every precision."""

import math

import pytest
import torch

from stickymoe.model.softmax_router import SoftmaxRouter


def build_router(tiny_config, weight, top_k, **settings):
    experts, hidden = len(weight), len(weight[0])
    router = SoftmaxRouter(
        tiny_config(
            num_experts=experts, num_experts_per_tok=top_k, hidden_size=hidden, num_attention_heads=1, **settings
        )
    )
    router.weight.data = torch.tensor(weight)
    return router


def test_a_hand_worked_token(tiny_config):
    # logits ln 1, ln 2, ln 5 -> gates 1/8, 2/8, 5/8; the top two, renormalised: 5/7 and 2/7
    weight = [[math.log(1.0)], [math.log(2.0)], [math.log(5.0)]]
    decision = build_router(tiny_config, weight, top_k=2)(torch.ones(1, 1, 1))
    torch.testing.assert_close(decision.gate_probs, torch.tensor([[[1, 2, 5]]]) / 8)
    assert decision.expert_ids.tolist() == [[[2, 1]]]
    torch.testing.assert_close(decision.expert_weights, torch.tensor([[[5, 2]]]) / 7)


def test_without_renormalisation_the_weights_are_the_gates(tiny_config):
    weight = [[math.log(1.0)], [math.log(2.0)], [math.log(5.0)]]
    decision = build_router(tiny_config, weight, top_k=2, norm_topk_prob=False)(torch.ones(1, 1, 1))
    torch.testing.assert_close(decision.expert_weights, torch.tensor([[[5, 2]]]) / 8)


def test_expert_ids_come_largest_weight_first_and_never_twice(tiny_config):
    router = build_router(tiny_config, torch.randn(8, 6).tolist(), top_k=3)
    decision = router(torch.randn(2, 50, 6))
    assert (decision.expert_weights.diff(dim=-1) <= 0).all()
    assert (decision.expert_ids.sort(dim=-1).values.diff(dim=-1) > 0).all()
    torch.testing.assert_close(decision.expert_weights.sum(dim=-1), torch.ones(2, 50))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_input_is_routed_in_float32(tiny_config, dtype):
    router = build_router(tiny_config, torch.randn(4, 6).tolist(), top_k=2)
    hidden = torch.randn(2, 9, 6).to(dtype)
    low, full = router.to(dtype)(hidden), router.float()(hidden.float())
    assert low.gate_probs.dtype == torch.float32
    torch.testing.assert_close(low.gate_probs, full.gate_probs)


def test_autocast_does_not_reach_the_router(tiny_config):
    router = build_router(tiny_config, torch.randn(4, 6).tolist(), top_k=2)
    hidden = torch.randn(2, 9, 6)
    with torch.autocast("cpu", torch.bfloat16):
        inside = router(hidden)
    assert torch.equal(inside.router_logits, router(hidden).router_logits)


def test_double_precision_is_kept(tiny_config):
    router = build_router(tiny_config, torch.randn(4, 6).tolist(), top_k=2).double()
    hidden = torch.randn(1, 3, 6, dtype=torch.float64)
    decision = router(hidden)
    expected = (hidden @ router.weight.T).softmax(dim=-1)
    torch.testing.assert_close(decision.gate_probs, expected, atol=1e-15, rtol=1e-14)
