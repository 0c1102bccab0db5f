"""The experts against a loop over tokens and slots, and the promise to compute no more than was routed."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from stickymoe.model.dispatch import CPU_BLOCK_ROWS
from stickymoe.model.experts import Experts, MoELayer

ALL_SIZES = [(n, k) for n in (1, 2, 4, 16) for k in range(1, n + 1)]
TOLERANCE = {torch.float64: {"atol": 1e-12, "rtol": 1e-9}, torch.float32: {"atol": 1e-5, "rtol": 1e-4}}


@pytest.fixture
def build_experts(tiny_config):
    def build(num_experts, top_k, dtype=torch.float64):
        torch.manual_seed(1)
        experts = Experts(
            tiny_config(num_experts=num_experts, num_experts_per_tok=top_k, experts_implementation="eager")
        )
        for parameter in experts.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        return experts.to(dtype)

    return build


def draw(tokens, num_experts, top_k, dtype):
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(tokens, 12, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    scores = torch.rand(tokens, num_experts, generator=generator)
    weights, ids = scores.topk(top_k, dim=1)
    return hidden, ids, weights.to(dtype).detach().requires_grad_()


def assert_equal_with_gradients(experts, naive, hidden, ids, weights, dtype):
    inputs = [hidden, weights, *experts.parameters()]
    upstream = torch.randn(hidden.shape, dtype=dtype, generator=torch.Generator().manual_seed(3))
    fast, slow = experts(hidden, ids, weights), naive(experts, hidden, ids, weights)
    torch.testing.assert_close(fast, slow, **TOLERANCE[dtype])
    fast_gradients = torch.autograd.grad(fast, inputs, upstream)
    slow_gradients = torch.autograd.grad(slow, inputs, upstream, allow_unused=True)
    for got, wanted in zip(fast_gradients, slow_gradients, strict=True):
        torch.testing.assert_close(got, torch.zeros_like(got) if wanted is None else wanted, **TOLERANCE[dtype])


@pytest.mark.parametrize(("num_experts", "top_k"), ALL_SIZES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_output_and_every_gradient_equal_a_loop_over_tokens_and_experts(
    build_experts, naive_experts, num_experts, top_k, dtype
):
    experts = build_experts(num_experts, top_k, dtype)
    assert_equal_with_gradients(experts, naive_experts, *draw(11, num_experts, top_k, dtype), dtype)


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_token_and_one_token(build_experts, naive_experts, tokens):
    experts = build_experts(4, 2)
    assert_equal_with_gradients(experts, naive_experts, *draw(tokens, 4, 2, torch.float64), torch.float64)


def test_an_expert_nobody_chose_gets_gradients_of_zero(build_experts, naive_experts):
    experts = build_experts(4, 2)
    hidden, _, weights = draw(6, 4, 2, torch.float64)
    ids = torch.tensor([[3, 0]] * 6)
    assert_equal_with_gradients(experts, naive_experts, hidden, ids, weights, torch.float64)
    experts(hidden, ids, weights).sum().backward()
    for parameter in experts.parameters():
        assert parameter.grad[[1, 2]].abs().max() == 0
        assert parameter.grad[[0, 3]].abs().max() > 0


def test_shares_padded_to_blocks_change_neither_output_nor_gradients(build_experts, naive_experts):
    experts = build_experts(3, 2)
    hidden, ids, weights = draw(3 * CPU_BLOCK_ROWS, 3, 2, torch.float64)
    assert_equal_with_gradients(experts, naive_experts, hidden, ids, weights, torch.float64)


def rows_computed(experts, hidden, ids, weights):
    """Count the token rows that went through an expert, from the floating-point operations done."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        experts(hidden, ids, weights)
    _, width, hidden_size = experts.up_proj.shape
    return counter.get_total_flops() / (2 * 2 * width * hidden_size)


@pytest.mark.parametrize(("tokens", "num_experts", "top_k"), [(50, 16, 2), (50, 16, 1), (7, 4, 4)])
def test_only_routed_rows_are_computed(build_experts, tokens, num_experts, top_k):
    experts = build_experts(num_experts, top_k)
    assert rows_computed(experts, *draw(tokens, num_experts, top_k, torch.float64)) == tokens * top_k


def test_padding_to_blocks_costs_less_than_a_block_an_expert(build_experts):
    experts = build_experts(4, 1)
    rows = rows_computed(experts, *draw(2000, 4, 1, torch.float64))
    assert 2000 <= rows < 2000 + 4 * CPU_BLOCK_ROWS


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("norm_topk_prob", [True, False])
def test_transformers_own_implementations_agree(tiny_model, token_ids, implementation, norm_topk_prob):
    model = tiny_model(norm_topk_prob=norm_topk_prob, hidden_size=24, expert_intermediate_size=16).eval()
    ids = token_ids(2, 9)
    with torch.no_grad():
        ours = model(ids).logits
        model.set_experts_implementation(implementation)
        theirs = model(ids).logits
    assert model.config._experts_implementation == implementation
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_our_own_dispatch_is_the_default_and_can_be_chosen_back(tiny_model, token_ids):
    model = tiny_model().eval()
    assert model.config._experts_implementation == "eager"
    before = model(token_ids(1, 5)).logits
    model.set_experts_implementation("batched_mm")
    model.set_experts_implementation("eager")
    assert torch.equal(model(token_ids(1, 5)).logits, before)


def test_an_implementation_registered_with_transformers_is_called_once_a_layer(tiny_model, token_ids):
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    calls = []

    def count_and_return_zero(experts, hidden_states, top_k_index, top_k_weights):
        calls.append(top_k_index.shape)
        return torch.zeros_like(hidden_states)

    ALL_EXPERTS_FUNCTIONS.register("counting", count_and_return_zero)
    try:
        model = tiny_model().eval()
        model.set_experts_implementation("counting")
        model(token_ids(2, 5))
    finally:
        ALL_EXPERTS_FUNCTIONS._global_mapping.pop("counting", None)
    assert calls == [(10, 2), (10, 2)]


@pytest.mark.parametrize("num_experts", [1, 2, 4])
def test_in_the_dense_control_every_expert_serves_every_token(tiny_config, num_experts):
    torch.manual_seed(0)
    layer = MoELayer(
        tiny_config(num_experts=num_experts, num_experts_per_tok=num_experts, experts_implementation="eager")
    )
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    hidden = torch.randn(2, 5, 12)
    output, decision = layer(hidden)
    everyone = torch.arange(num_experts).expand(2, 5, num_experts)
    assert torch.equal(decision.expert_ids.sort(dim=-1).values, everyone)
    experts = layer.experts
    inner = torch.einsum("btd,ewd->btew", hidden, experts.up_proj) + experts.up_proj_bias
    dense = torch.einsum("btew,edw->bted", torch.nn.functional.gelu(inner), experts.down_proj) + experts.down_proj_bias
    torch.testing.assert_close(output, (dense * decision.gate_probs[..., None]).sum(dim=2), atol=1e-4, rtol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_experts_on_a_gpu_equal_those_on_the_cpu(build_experts):
    experts = build_experts(4, 2, torch.float32)
    hidden, ids, weights = draw(300, 4, 2, torch.float32)
    expected = experts(hidden, ids, weights)
    actual = experts.cuda()(hidden.cuda(), ids.cuda(), weights.cuda())
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-4, rtol=1e-4)
