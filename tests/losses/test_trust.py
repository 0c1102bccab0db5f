"""The trust loss against hand-worked values and a loop over tokens."""

import math

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import Objective, trust_loss
from stickymoe.routing import Routing


def naive(gates, reference, mask):
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(gates.shape[0]):
        for t in range(gates.shape[1]):
            if mask is None or mask[b, t]:
                total = total + sum(p * (p / r).log() for p, r in zip(gates[b, t], reference[b, t], strict=True))
                count += 1
    return total / count if count else total


def test_a_hand_worked_token():
    gates, reference = torch.tensor([[[0.75, 0.25]]]), torch.tensor([[[0.5, 0.5]]])
    assert trust_loss(gates, reference).item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert trust_loss(gates, gates).item() == 0


@pytest.mark.parametrize("padded", [False, True])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, padded):
    batch = make_batch(seed=2, padded=padded)
    gates = batch.gates.detach()[0].requires_grad_()
    reference = batch.reference.detach()[0].requires_grad_()
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, reference.detach().double(), batch.mask)
    expected.backward()
    loss = trust_loss(gates, reference, batch.mask)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert reference.grad is None  # the frozen router is a target, whatever it hangs on


def test_an_expert_that_underflows_on_either_side_leaves_value_and_gradient_finite():
    logits = torch.tensor([[[0.0, -300.0]]], requires_grad=True)
    for reference in ([[[1e-30, 1.0]]], [[[0.0, 1.0]]], [[[0.5, 0.5]]]):
        logits.grad = None
        loss = trust_loss(logits.softmax(dim=-1), torch.tensor(reference))
        loss.backward()
        assert loss.isfinite()
        assert logits.grad.isfinite().all()


def test_without_a_frozen_router_it_says_what_is_missing(make_batch):
    batch = make_batch()
    routing = Routing(tuple(batch.logits), tuple(batch.gates), tuple(batch.ids), tuple(batch.ids.float()))
    with pytest.raises(SettingError, match=r"^objective.trust must be used with routing.reference_probs, .* got none"):
        Objective(trust=1.0)(routing)
