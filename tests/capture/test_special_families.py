"""Families that depart from the common contract, each against its own definition worked out by hand."""

import pytest
import torch

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError

pytestmark = pytest.mark.hf


def called(model, ending, of_output=True):
    """Note what every module whose class name ends so returns, or is given."""
    seen = []
    for module in model.modules():
        if type(module).__name__.endswith(ending):
            if of_output:
                module.register_forward_hook(lambda m, args, out: seen.append((m, args, out)))
            else:
                module.register_forward_pre_hook(lambda m, args: seen.append((m, args, None)))
    return seen


def test_llama4_chooses_the_highest_logits_and_weighs_by_their_sigmoid(token_ids):
    model = tiny_model("llama4")
    with capture_routing(model) as capture:
        model(token_ids(2, 5))
    routing = capture.routing
    for logits, ids, weights in zip(routing.router_logits, routing.expert_ids, routing.expert_weights, strict=True):
        top = logits.topk(2, dim=-1)
        assert torch.equal(ids, top.indices)
        torch.testing.assert_close(weights, top.values.sigmoid())


def test_jetmoe_has_two_layers_a_block_read_back_from_the_sorted_layout(token_ids):
    model = tiny_model("jetmoe")
    with capture_routing(model) as capture:
        model(token_ids(2, 5))
    assert capture.last.layer_names[:2] == ("0.self_attention", "0.mlp")
    routing = capture.routing
    for logits, ids, weights in zip(routing.router_logits, routing.expert_ids, routing.expert_weights, strict=True):
        top = logits.topk(2, dim=-1)
        assert torch.equal(ids, top.indices)
        torch.testing.assert_close(weights, top.values.softmax(dim=-1))
        assert weights.requires_grad


def test_gemma4_logits_are_no_probabilities(token_ids):
    model = tiny_model("gemma4")
    seen = called(model, "TextRouter")
    with capture_routing(model) as capture:
        model(token_ids(1, 5))
    for (_, _, out), logits, gates in zip(seen, capture.routing.router_logits, capture.routing.gate_probs, strict=True):
        torch.testing.assert_close(gates[0], out[0])
        assert (logits < 0).any()


def test_deepseek_v4_hash_layers_are_captured_as_fixed_or_left_out(token_ids):
    model = tiny_model("deepseek_v4")
    ids = token_ids(1, 6)
    with capture_routing(model) as capture:
        model(ids)
    assert capture.last.layer_names == ("0", "1", "2")
    assert [layer.is_fixed for layer in capture.layers] == [True, False, False]
    table = model.model.layers[0].mlp.gate.tid2eid
    found = capture.routing.expert_ids[0].sort(dim=-1).values
    assert torch.equal(found, table[ids].sort(dim=-1).values)
    with capture_routing(model, fixed_layers=False) as capture:
        model(ids)
    assert capture.last.layer_names == ("1", "2")


def test_longcats_zero_experts_have_ids_behind_the_real_ones(token_ids):
    model = tiny_model("longcat_flash")
    with capture_routing(model) as capture:
        model(token_ids(4, 8))
    layer, routing = capture.layers[0], capture.routing
    assert routing.num_experts == 6
    assert layer.family.num_experts(layer.experts, routing.num_experts) == 4
    assert (torch.cat([ids.flatten() for ids in routing.expert_ids]) >= 4).any()


def test_zayas_skipped_tokens_have_the_last_id_and_no_weight(token_ids):
    model = tiny_model("zaya")
    with capture_routing(model) as capture:
        model(token_ids(4, 8))
    routing, layer = capture.routing, capture.layers[0]
    ids = torch.stack(routing.expert_ids)
    assert layer.family.num_experts(layer.experts, routing.num_experts) == 4
    assert (ids == 4).any()
    assert torch.equal(ids == 4, torch.stack(routing.expert_weights) == 0)
    biases = model.model.layers[0].mlp.gate.balancing_biases
    chosen = (routing.gate_probs[0] + biases).argmax(dim=-1, keepdim=True)
    assert torch.equal(ids[0], chosen)


def test_a_looped_layer_is_a_layer_of_its_own_each_time(token_ids):
    model = tiny_model("inkling2_loop")
    seen = called(model, "Router")
    with capture_routing(model) as capture:
        model(token_ids(1, 5))
    assert capture.last.layer_names == ("0", "1", "1#1", "1#2", "2")
    for (_, _, out), logits in zip(seen, capture.routing.router_logits, strict=True):
        assert torch.equal(logits[0], out[0])


@pytest.mark.parametrize("family", ["switch_transformers", "nllb_moe"])
def test_encoder_and_decoder_are_captured_apart(token_ids, family):
    model = tiny_model(family)
    with capture_routing(model) as capture:
        model(input_ids=token_ids(2, 7), decoder_input_ids=token_ids(2, 3))
    encoder, decoder = capture.stack_names
    assert (encoder.split(".")[-1], decoder.split(".")[-1]) == ("encoder", "decoder")
    assert capture.passes_of(encoder)[0].routing.gate_probs[0].shape[:2] == (2, 7)
    assert capture.routing.gate_probs[0].shape[:2] == (2, 3)
    with pytest.raises(ValueError, match="did you mean"):
        capture.passes_of(encoder + "s")


def test_switch_tokens_dropped_by_capacity_have_weight_0(token_ids):
    model = tiny_model("switch_transformers", expert_capacity=1)
    with torch.no_grad(), capture_routing(model) as capture:
        model(input_ids=token_ids(2, 8), decoder_input_ids=token_ids(2, 8))
    for stack in capture.stack_names:
        routing = capture.passes_of(stack)[0].routing
        ids, weights = routing.expert_ids[0], routing.expert_weights[0]
        for row in range(2):
            taken = set()
            for t in range(8):
                expert = int(routing.router_logits[0][row, t].argmax())
                gate = float(routing.gate_probs[0][row, t, expert])
                assert int(ids[row, t]) == expert
                assert float(weights[row, t]) == pytest.approx(0.0 if expert in taken else gate, rel=1e-5)
                taken.add(expert)
            assert len(taken) < 8


def test_nllb_takes_the_two_likeliest_and_weighs_them_by_their_shares(token_ids):
    model = tiny_model("nllb_moe", expert_capacity=64)
    with capture_routing(model) as capture:
        model(input_ids=token_ids(2, 6), decoder_input_ids=token_ids(2, 6))
    routing = capture.routing
    top = routing.gate_probs[0].topk(2, dim=-1)
    assert torch.equal(routing.expert_ids[0], top.indices)
    torch.testing.assert_close(routing.expert_weights[0], top.values / top.values.sum(dim=-1, keepdim=True))


def test_nllbs_experts_run_regardless_of_the_router_as_its_note_says(token_ids):
    model = tiny_model("nllb_moe")
    rows = {}
    for name, module in model.named_modules():
        if ".experts.expert_" in name and name.endswith("fc1"):
            expert = name.split(".experts.")[1].split(".")[0]
            module.register_forward_pre_hook(lambda _, args, expert=expert: rows.update({expert: len(args[0])}))
    with capture_routing(model) as capture:
        model(input_ids=token_ids(2, 6), decoder_input_ids=token_ids(2, 6))
    assert capture.routing.expert_ids[0].unique().numel() > 2
    # When this fails, transformers has mended it: take the remark out of the family's note
    assert set(rows) == {"expert_0", "expert_1"}


def test_ernie_vl_puts_text_and_vision_experts_side_by_side(token_ids):
    model = tiny_model("ernie4_5_vl_moe")
    ids = token_ids(2, 4)
    image = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 0]])
    seen = called(model, "TopKRouter")
    with capture_routing(model) as capture:
        model(input_ids=ids, moe_mm_token_type_ids=image)
        routing = capture.routing
        model(input_ids=ids)
        text = capture.routing
    assert (routing.num_experts, text.num_experts) == (8, 4)
    assert capture.last.layer_names == ("1", "2")
    (_, _, of_text), (_, _, of_image) = seen[:2]
    gates, chosen, weights = routing.gate_probs[0], routing.expert_ids[0], routing.expert_weights[0]
    assert torch.equal(chosen >= 4, image.bool()[..., None].expand_as(chosen))
    torch.testing.assert_close(gates[image.bool()][:, 4:], of_image[0].softmax(-1))
    torch.testing.assert_close(gates[~image.bool()][:, :4], of_text[0].softmax(-1))
    torch.testing.assert_close(gates.sum(-1), torch.ones(2, 4))
    torch.testing.assert_close(weights[image.bool()], of_image[1].sort(dim=-1, descending=True).values)
    gates[:, 1:].sub(gates[:, :-1]).square().sum().backward()
    assert model.layers[1].mlp.vision_moe.gate.weight.grad.abs().sum() > 0
    assert model.layers[1].mlp.text_moe.gate.weight.grad.abs().sum() > 0


def test_cohere2_gates_follow_its_config(token_ids):
    for function in ("softmax", "sigmoid"):
        model = tiny_model("cohere2_moe", expert_selection_fn=function)
        with capture_routing(model) as capture:
            model(token_ids(1, 4))
        logits = capture.routing.router_logits[0]
        scores = logits.sigmoid() if function == "sigmoid" else logits.exp()
        torch.testing.assert_close(capture.routing.gate_probs[0], scores / scores.sum(-1, keepdim=True))


def test_doge_is_refused_with_the_reason():
    with pytest.raises(CaptureError, match=r"^DogeModel cannot be captured: its routing mixes the scores of different"):
        capture_routing(tiny_model("doge"))
