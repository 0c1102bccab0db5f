"""`capture_routing` on the main families: the right gates, their gradients, the experts that served, no side effect."""

import copy

import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM


def gates_by_hand(model, ids):
    """Gates of every layer from the weights: what enters each router, times its matrix, through its function."""
    entered = []
    routers = [module for name, module in model.named_modules() if name.endswith((".gate", ".router"))]
    hooks = [router.register_forward_pre_hook(lambda _, args: entered.append(args[0])) for router in routers]
    out = model(ids, labels=ids)
    for hook in hooks:
        hook.remove()
    found = []
    for router, hidden in zip(routers, entered, strict=True):
        logits = hidden.reshape(-1, hidden.shape[-1]) @ router.weight.T
        logits = logits + getattr(router, "bias", 0.0)
        if model.config.model_type == "deepseek_v3":
            scores = 1 / (1 + (-logits).exp())
        else:
            scores = (logits - logits.max(dim=-1, keepdim=True).values).exp()
        found.append((scores / scores.sum(dim=-1, keepdim=True)).view(*ids.shape, -1))
    return out, found


def test_gates_and_their_gradients_are_those_computed_by_hand(main_model, token_ids, slow_consistency, gradients_of):
    ids = token_ids(2, 7)
    pairs = [(row, t) for row in range(2) for t in range(1, 7)]
    with capture_routing(main_model) as capture:
        out = main_model(ids, labels=ids)
        captured = capture.routing
    found = gradients_of(main_model, out.loss + slow_consistency(captured.gate_probs, pairs))
    plain, by_hand = gates_by_hand(main_model, ids)
    expected = gradients_of(main_model, plain.loss + slow_consistency(by_hand, pairs))
    torch.testing.assert_close(captured.gate_probs, tuple(by_hand))
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    alone = gradients_of(main_model, main_model(ids, labels=ids).loss)
    assert any(not torch.equal(alone[name], found[name]) for name in alone if "gate" in name or "router" in name)


def test_the_experts_are_those_that_served_the_heaviest_first(main_model, token_ids):
    served = []
    for module in main_model.modules():
        if type(module).__name__.endswith("Experts"):
            module.register_forward_pre_hook(lambda _, args: served.append(args[1:3]))
    with capture_routing(main_model) as capture:
        main_model(token_ids(2, 5))
    routing = capture.routing
    assert len(served) == routing.num_layers
    for (ids, weights), got_ids, got_weights in zip(served, routing.expert_ids, routing.expert_weights, strict=True):
        assert (got_weights[..., 1:] <= got_weights[..., :-1]).all()
        for token in range(10):
            expected = dict(zip(ids[token].tolist(), weights[token].tolist(), strict=True))
            row = got_ids.view(10, -1)[token].tolist(), got_weights.view(10, -1)[token].tolist()
            assert dict(zip(*row, strict=True)) == expected


def test_outputs_loss_and_gradients_are_bit_identical_with_and_without_capture(main_model, token_ids, gradients_of):
    ids = token_ids(2, 6)
    plain = main_model(ids, labels=ids)
    logits = main_model(ids).logits
    expected = gradients_of(main_model, plain.loss)
    with capture_routing(main_model) as capture:
        out = main_model(ids, labels=ids)
        assert torch.equal(main_model(ids).logits, logits)
        assert capture.routing.num_layers
    assert torch.equal(out.loss, plain.loss)
    found = gradients_of(main_model, out.loss)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_reference_models_capture_is_what_its_output_says(build, token_ids):
    model = build("stickymoe")
    with capture_routing(model) as capture:
        out = model(token_ids(2, 5), attention_mask=torch.tensor([[0, 0, 1, 1, 1], [1] * 5]))
    for name in ("router_logits", "gate_probs", "expert_ids", "expert_weights"):
        for got, expected in zip(getattr(capture.routing, name), getattr(out.routing, name), strict=True):
            assert torch.equal(got, expected)
    assert torch.equal(capture.routing.token_mask, out.routing.token_mask)


def test_hooks_come_off_at_the_end_and_a_second_removal_is_harmless(build, token_ids):
    model = build("mixtral")

    def hooks():
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    before = hooks()
    handle = capture_routing(model)
    assert hooks() > before
    model(token_ids(1, 4))
    handle.remove()
    handle.remove()
    assert hooks() == before
    kept = handle.last
    model(token_ids(1, 5))
    assert handle.last is kept
    with pytest.raises(RuntimeError, match="stop"), capture_routing(model):
        raise RuntimeError("stop")
    assert hooks() == before


def test_passes_are_kept_as_many_as_asked_for_and_taken_once(build, token_ids):
    model = build("mixtral")
    seen = []
    with capture_routing(model, keep=2, on_pass=seen.append) as capture:
        for length in (3, 4, 5):
            model(token_ids(1, length))
    assert [done.inputs.shape[1] for done in seen] == [3, 4, 5]
    assert [done.inputs.shape[1] for done in capture.passes] == [4, 5]
    assert [done.inputs.shape[1] for done in capture.take()] == [4, 5]
    assert capture.passes == []
    with pytest.raises(SettingError, match="keep must be >= 1"):
        capture_routing(model, keep=0)


def test_without_gradients_the_routing_is_detached(build, token_ids):
    model = build("mixtral")
    with capture_routing(model, gradients=False) as capture:
        model(token_ids(1, 4))
    routing = capture.routing
    layers = (*routing.router_logits, *routing.gate_probs, *routing.expert_weights)
    assert not any(tensor.requires_grad for tensor in layers)


def test_routing_read_first_in_a_block_without_gradients_has_them_all_the_same(build, token_ids):
    model = build("mixtral")
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
    with torch.no_grad():
        assert capture.routing.gate_probs[0].requires_grad


def test_a_forward_pass_that_failed_leaves_nothing_behind(build, token_ids):
    model = build("mixtral")
    with capture_routing(model) as capture:
        hook = model.model.norm.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(token_ids(1, 4))
        hook.remove()
        model(token_ids(1, 3))
    assert [done.inputs.shape for done in capture.passes] == [(1, 3)]
    assert capture.routing.num_layers == 3


def test_a_model_with_hooks_can_be_copied_and_the_copy_captures_for_itself(build, token_ids):
    model = build("mixtral")
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
        twin = copy.deepcopy(model)
        routing = capture.routing
        twin(token_ids(1, 6))
        assert capture.routing is routing


def test_a_dense_model_is_refused_in_one_line():
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    with pytest.raises(CaptureError, match=r"^LlamaForCausalLM has no router .*dense.*$"):
        capture_routing(model)


def test_reading_before_any_pass_says_what_to_do(build):
    capture = capture_routing(build("mixtral"))
    with pytest.raises(CaptureError, match="no forward pass was seen"):
        _ = capture.routing


def test_a_model_of_fixed_routers_alone_has_nothing_for_a_loss(token_ids):
    config = StickyMoEConfig(
        vocab_size=64, hidden_size=16, num_attention_heads=2, num_hidden_layers=2, expert_intermediate_size=8,
        max_position_embeddings=64, router_type="hash",
    )  # fmt: skip
    model = StickyMoEForCausalLM(config)
    with pytest.raises(CaptureError, match="fixed table, which no loss can move"):
        capture_routing(model, fixed_layers=False)
    with capture_routing(model) as capture:
        model(token_ids(1, 4))
    assert capture.routing.num_layers == 2
