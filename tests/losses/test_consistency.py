"""The consistency loss against hand-worked values and a loop over pairs."""

import pytest
import torch

from stickymoe.losses import consistency_loss
from stickymoe.routing import valid_pairs


def naive(gates, weights):
    total = weight = torch.zeros((), dtype=torch.float64)
    for b in range(gates.shape[0]):
        for t in range(1, gates.shape[1]):
            w = float(weights[b, t - 1])
            for e in range(gates.shape[2]):
                total = total + w * (gates[b, t, e] - gates[b, t - 1, e]) ** 2
            weight = weight + w
    return total / weight if weight > 0 else total


def test_a_hand_worked_sequence():
    # gates     (1, 0)  (0, 1)  (0, 1)  (.5, .5)
    # distance         2       0       .5
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.5, 0.5]]])
    assert consistency_loss(gates).item() == pytest.approx(2.5 / 3)
    assert consistency_loss(gates, torch.tensor([[False, True, True]])).item() == pytest.approx(0.25)
    assert consistency_loss(gates, torch.tensor([[0.5, 1.0, 0.0]])).item() == pytest.approx(1.0 / 1.5)


@pytest.mark.parametrize("kind", ["all", "valid", "weighted"])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, kind):
    batch = make_batch(seed=1)
    gates = batch.gates.detach()[0].requires_grad_()
    weights = {"all": None, "valid": valid_pairs(batch.mask, batch.docs), "weighted": batch.pair_weights}[kind]
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, torch.ones_like(batch.pair_weights) if weights is None else weights)
    expected.backward()
    loss = consistency_loss(gates, weights)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert gates.grad.abs().sum() > 0


def test_weights_of_zero_and_one_are_the_same_as_false_and_true(make_batch):
    batch = make_batch(seed=2)
    pairs = valid_pairs(batch.mask, batch.docs)
    assert torch.equal(consistency_loss(batch.gates[0], pairs), consistency_loss(batch.gates[0], pairs.float()))
