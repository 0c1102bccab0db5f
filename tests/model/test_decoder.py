"""Activation checkpointing: the same loss, gradients and routing, seen once."""

import pytest
import torch

from stickymoe.losses import Objective


def run(model, ids, objective):
    """Return the losses' values, all gradients, and the routing of one training step."""
    torch.manual_seed(0)
    out = model(ids, labels=ids)
    side = objective(out.routing).total
    parameters = list(model.parameters())
    out.loss.backward(retain_graph=True)
    of_loss = [parameter.grad.clone() for parameter in parameters]
    model.zero_grad()
    side.backward()
    of_side = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    return (out.loss, side), of_loss, of_side, out.routing


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_loss_side_loss_and_gradients_are_as_without(tiny_model, token_ids, use_reentrant, dropout):
    objective, ids = Objective(consistency=1.0, router_z=0.1, load_balancing=0.5), token_ids(2, 8)
    plain = tiny_model(torch.float64, dropout=dropout).train()
    checkpointed = tiny_model(torch.float64, dropout=dropout).train()
    checkpointed.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    values, of_loss, of_side, _ = run(plain, ids, objective)
    values_again, of_loss_again, of_side_again, routing = run(checkpointed, ids, objective)
    torch.testing.assert_close(values_again, values)
    for name, *gradients in zip(
        dict(plain.named_parameters()), of_loss, of_loss_again, of_side, of_side_again, strict=True
    ):
        torch.testing.assert_close(gradients[1], gradients[0], msg=lambda m, name=name: f"{name}: {m}")
        torch.testing.assert_close(gradients[3], gradients[2], msg=lambda m, name=name: f"{name}: {m}")
    routers = [p for name, p in zip(dict(plain.named_parameters()), of_side, strict=True) if "router" in name]
    assert all(gradient.abs().max() > 0 for gradient in routers), "the side loss must reach every router"
    assert routing.num_layers == 2


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_layers_are_computed_anew_in_the_backward_pass(tiny_model, token_ids, use_reentrant):
    model = tiny_model().train()
    model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    calls = []
    model.model.layers[0].moe.router.register_forward_hook(lambda *_: calls.append(1))
    out = model(token_ids(1, 4), labels=token_ids(1, 4))
    assert len(calls) == 1
    out.loss.backward()
    assert len(calls) == 2, "not checkpointed at all"
    assert out.routing.num_layers == 2, "the second pass must leave no second routing"


def test_checkpointing_with_packed_and_padded_rows(tiny_model, token_ids):
    ids = token_ids(2, 8)
    kwargs = {
        "attention_mask": torch.tensor([[1] * 8, [0, 0, 1, 1, 1, 1, 1, 1]]),
        "document_ids": torch.tensor([[0] * 3 + [1] * 5] * 2),
        "labels": ids,
    }
    plain, checkpointed = tiny_model().train(), tiny_model().train()
    checkpointed.activation_checkpointing_enable()
    losses = [model(ids, **kwargs).loss for model in (plain, checkpointed)]
    torch.testing.assert_close(losses[1], losses[0])
    for loss in losses:
        loss.backward()
    for one, other in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
