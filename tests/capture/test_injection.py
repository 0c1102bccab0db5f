"""Gradients injected inside the layers are those of the loss on captured routing, under every kind of checkpoint."""

import pytest
import torch

from stickymoe.capture import capture_routing, inject_gradients
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import CaptureError
from stickymoe.losses import Objective

consistency = Objective(consistency=1.0)


def injected(routing):
    return consistency(routing).total


def checkpoint(model, kind):
    model.train()
    if kind != "plain":
        model.activation_checkpointing_enable({"use_reentrant": kind == "reentrant"})
        model.enable_input_require_grads()  # reentrant checkpoints want an input with gradients


@pytest.mark.filterwarnings("ignore:.*requires_grad:UserWarning")
@pytest.mark.parametrize("kind", ["plain", "non-reentrant", "reentrant"])
def test_the_gradient_is_that_of_the_captured_routings_loss(main_model, token_ids, gradients_of, kind):
    ids = token_ids(2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids, "use_cache": False}
    main_model.train()
    with capture_routing(main_model) as capture:
        out = main_model(**batch)
    value = consistency(capture.routing).total
    expected = gradients_of(main_model, out.loss + 0.25 * value)
    checkpoint(main_model, kind)
    with inject_gradients(main_model, injected, scale=0.25) as injection:
        out_again = main_model(**batch)
        found = gradients_of(main_model, out_again.loss)
    torch.testing.assert_close(out_again.loss, out.loss)
    assert injection.value == pytest.approx(float(value.detach()), rel=1e-5)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    plain = gradients_of(main_model, main_model(**batch).loss)
    assert any(not torch.allclose(plain[name], found[name], rtol=1e-3) for name in plain)


def test_outputs_are_bit_identical_with_injection(main_model, token_ids):
    ids = token_ids(2, 6)
    plain = main_model(ids).logits
    with inject_gradients(main_model, injected):
        assert torch.equal(main_model(ids).logits, plain)


@pytest.mark.filterwarnings("ignore:.*requires_grad:UserWarning")
def test_a_second_pass_before_the_firsts_backward_is_an_error_where_its_context_would_be_lost(build, token_ids):
    model = build("mixtral")
    checkpoint(model, "reentrant")
    with inject_gradients(model, injected) as injection:
        model(token_ids(1, 4), use_cache=False)
        with pytest.raises(CaptureError, match="before the backward pass of the first"):
            model(token_ids(1, 5), use_cache=False)
        injection.reset()
        out = model(token_ids(1, 5), use_cache=False)
        with torch.no_grad():
            model(token_ids(1, 3))  # evaluation in between takes nothing away
        out.logits.mean().backward()
        model(token_ids(1, 5), use_cache=False)


def test_families_without_weights_at_their_experts_are_refused():
    with pytest.raises(CaptureError, match="'jetmoe', whose experts receive no weights"):
        inject_gradients(tiny_model("jetmoe"), injected)


def test_the_value_before_any_pass_is_an_error(build):
    with pytest.raises(CaptureError, match="no forward pass was seen"):
        _ = inject_gradients(build("mixtral"), injected).value
