"""Every MoE family of the installed transformers, on tiny random models: gates, gradients, cache, checkpointing."""

import pytest
import torch

from stickymoe.capture import capture_routing, inject_gradients
from stickymoe.capture.families import FAMILIES
from stickymoe.capture.gates import misfit
from stickymoe.capture.tiny import families
from stickymoe.core.errors import CaptureError

pytestmark = pytest.mark.hf

CAPTURED = [family for family in families() if not (family in FAMILIES and FAMILIES[family].refused)]
ENCODER_DECODER = ["nllb_moe", "switch_transformers"]
CAUSAL = [family for family in CAPTURED if family not in ENCODER_DECODER]


def given(model, ids):
    return {"input_ids": ids, "decoder_input_ids": ids} if model.config.is_encoder_decoder else {"input_ids": ids}


def can_checkpoint(model):
    layers = any(hasattr(module, "gradient_checkpointing") for module in model.modules())
    return layers and model.supports_gradient_checkpointing


def side_loss(gates):
    return sum((layer[:, 1:] - layer[:, :-1]).square().sum(-1).mean() for layer in gates)


def outputs(out):
    return [out.logits if "logits" in out else out.last_hidden_state]


@pytest.mark.parametrize("family", families())
def test_every_family_that_declares_routers_is_known(family):
    assert family in FAMILIES


@pytest.mark.parametrize("family", CAPTURED)
def test_weights_are_the_gates_of_the_chosen_experts(shared, token_ids, family):
    if family == "phimoe":
        pytest.skip("its sparse mixer weighs by other softmaxes")
    model = shared(family)
    with capture_routing(model) as capture:
        model(**given(model, token_ids(2, 6)))
    routing = capture.routing
    for gates, ids, weights in zip(routing.gate_probs, routing.expert_ids, routing.expert_weights, strict=True):
        assert torch.allclose(gates.sum(-1), torch.ones(2, 6), atol=1e-5)
        served = (weights > 0).flatten(0, 1).all(-1)
        assert served.any()
        rows = [part.flatten(0, 1)[served] for part in (gates, ids, weights)]
        assert misfit(*rows) < 1e-3
        assert (weights[..., 1:] <= weights[..., :-1]).all()
        assert ids.unique().numel() > 1


@pytest.mark.parametrize("family", CAPTURED)
def test_capture_changes_no_bit_of_the_output(shared, token_ids, family):
    model = shared(family)
    batch = given(model, token_ids(2, 6))
    with torch.no_grad():
        expected = outputs(model(**batch))
        with capture_routing(model) as capture:
            found = outputs(model(**batch))
    assert capture.routing.num_layers
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("family", CAUSAL)
def test_gradients_are_those_of_the_logits_that_the_model_records(shared, token_ids, gradients_of, family):
    model = shared(family)
    ids = token_ids(2, 6)
    with capture_routing(model, fixed_layers=False) as capture:
        model(input_ids=ids)
    routing = capture.routing
    recorded = model(input_ids=ids, output_router_logits=True).router_logits
    assert len(recorded) == routing.num_layers
    routers = {layer.name: layer for layer in capture.layers}
    gates = []
    for name, logits, captured in zip(capture.last.layer_names, recorded, routing.router_logits, strict=True):
        layer = routers[name.split("#")[0]]
        if "gemma" in family:  # records probabilities
            gates.append(logits.view(2, 6, -1))
            continue
        torch.testing.assert_close(logits.view_as(captured), captured)
        gates.append(layer.family.gates(layer.routers[0], logits).view(2, 6, -1))
    expected = gradients_of(model, side_loss(gates))
    found = gradients_of(model, side_loss(routing.gate_probs))
    assert expected.keys() == found.keys()
    assert max(tensor.abs().max() for tensor in expected.values()) > 0
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("family", CAUSAL)
def test_a_step_behind_a_cache_is_captured_as_the_whole_pass_shows_it(shared, token_ids, family):
    model = shared(family)
    ids = token_ids(1, 6)
    with torch.no_grad(), capture_routing(model, keep=None) as capture:
        model(input_ids=ids)
        out = model(input_ids=ids[:, :5], use_cache=True)
        if out.get("cache") is None:
            pytest.skip("has no cache")
        model(input_ids=ids[:, 5:], cache=out.cache, use_cache=True)
    whole, prompt, step = capture.passes
    assert [done.phase for done in (whole, prompt, step)] == ["prefill", "prefill", "decode"]
    assert (step.inputs.past, step.inputs.positions.tolist()) == (5, [[5]])
    for part, columns in ((prompt, slice(0, 5)), (step, slice(5, 6))):
        for got, expected in zip(part.routing.gate_probs, whole.routing.gate_probs, strict=True):
            torch.testing.assert_close(got, expected[:, columns], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_leaves_the_real_tokens_routing_alone(shared, token_ids, family, side):
    model = shared(family)
    ids, pads = token_ids(1, 4), torch.zeros(1, 2, dtype=torch.long)
    parts = (pads, ids) if side == "left" else (ids, pads)
    real = torch.cat([torch.ones_like(part) * (part is ids) for part in parts], dim=1)
    with torch.no_grad(), capture_routing(model, keep=None) as capture:
        model(input_ids=ids)
        model(input_ids=torch.cat(parts, dim=1), attention_mask=real)
    alone, padded = (done.routing for done in capture.passes)
    assert padded.token_mask.tolist() == real.bool().tolist()
    assert padded.valid_pairs().sum() == 3
    for got, expected in zip(padded.gate_probs, alone.gate_probs, strict=True):
        torch.testing.assert_close(got[:, real[0].bool()], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", CAUSAL)
def test_checkpointing_is_seen_once_or_refused(shared, token_ids, gradients_of, family):
    model = shared(family)
    if not can_checkpoint(model):
        pytest.skip("does not support checkpointing")
    ids = token_ids(1, 5)
    model.train()
    try:
        plain = checkpointed(model, ids, None, gradients_of)
        again = checkpointed(model, ids, False, gradients_of)
        torch.testing.assert_close(again, plain, rtol=1e-4, atol=1e-6)
        with pytest.raises(CaptureError, match="reentrant activation checkpointing"):
            checkpointed(model, ids, True, gradients_of)
    finally:
        model.activation_checkpointing_disable()
        model.eval()


def checkpointed(model, ids, reentrant, gradients_of):
    if reentrant is not None:
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with capture_routing(model, keep=None) as capture:
        torch.manual_seed(0)
        out = model(input_ids=ids, use_cache=False)
        loss = side_loss(capture.routing.gate_probs) + outputs(out)[0].square().mean()
        gradients = gradients_of(model, loss)
    assert len(capture.passes) == 1
    return gradients


@pytest.mark.filterwarnings("ignore:.*requires_grad:UserWarning")
@pytest.mark.parametrize("family", [family for family in CAUSAL if FAMILIES[family].weighs_in_experts])
def test_injected_gradients_are_those_of_the_captured_routing_under_reentrant_checkpoints(
    shared, token_ids, gradients_of, family
):
    model = shared(family)
    if family == "mistral_large4":
        pytest.skip("its layers share states, which reentrant checkpoints break without any capture")
    if not can_checkpoint(model):
        pytest.skip("does not support checkpointing")
    ids = token_ids(1, 5)
    model.train()
    try:
        with capture_routing(model, fixed_layers=False) as capture:
            torch.manual_seed(0)
            out = model(input_ids=ids, use_cache=False)
        routing = capture.routing
        gates = routing.gate_probs
        if len(gates) != len(capture.layers):
            pytest.skip("looped layers count by turns")
        expected = gradients_of(model, outputs(out)[0].square().mean() + side_loss(gates) / len(gates))
        model.activation_checkpointing_enable({"use_reentrant": True})
        model.enable_input_require_grads()
        with inject_gradients(model, lambda layer: side_loss(layer.gate_probs)):
            torch.manual_seed(0)
            found = gradients_of(model, outputs(model(input_ids=ids, use_cache=False))[0].square().mean())
    finally:
        model.disable_input_require_grads()
        model.activation_checkpointing_disable()
        model.eval()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
