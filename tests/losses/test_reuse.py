"""The reuse loss against hand-worked values and a loop over pairs."""

import math

import pytest
import torch

from stickymoe.losses import reuse_loss
from stickymoe.routing import valid_pairs


def naive(gates, ids, weights):
    mass, weight = torch.zeros((), dtype=torch.float64), 0.0
    for b in range(gates.shape[0]):
        for t in range(1, gates.shape[1]):
            w = float(weights[b, t - 1])
            previous = ids[b, t - 1].tolist()
            mass = mass + w * sum(gates[b, t, e] for e in previous) / len(previous)
            weight += w
    return -(mass / weight + 1e-8).log()


def test_a_hand_worked_sequence():
    # chosen {0, 1} {1, 2} {0, 1}: gates on the set before are .2 + .5 and .3 + .1, halved: .35 and .2
    gates = torch.tensor([[[0.6, 0.4, 0.0], [0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]])
    ids = torch.tensor([[[0, 1], [1, 2], [0, 1]]])
    assert reuse_loss(gates, ids).item() == pytest.approx(-math.log((0.35 + 0.2) / 2))
    assert reuse_loss(gates, ids, torch.tensor([[False, True]])).item() == pytest.approx(-math.log(0.2))
    assert reuse_loss(gates, ids, torch.tensor([[1.0, 0.5]])).item() == pytest.approx(-math.log((0.35 + 0.1) / 1.5))


def test_its_ends_are_log_k_and_the_floor():
    ids = torch.tensor([[[0, 1], [0, 1]]])
    assert reuse_loss(torch.tensor([[[0.5, 0.5, 0.0]] * 2]), ids).item() == pytest.approx(math.log(2))
    assert reuse_loss(torch.tensor([[[0.0, 0.0, 1.0]] * 2]), ids).item() == pytest.approx(-math.log(1e-8))


@pytest.mark.parametrize("kind", ["all", "valid", "weighted"])
@pytest.mark.parametrize("top_k", [1, 3])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, kind, top_k):
    batch = make_batch(seed=8, top_k=top_k)
    gates, ids = batch.gates.detach()[0].requires_grad_(), batch.ids[0]
    weights = {"all": None, "valid": valid_pairs(batch.mask, batch.docs), "weighted": batch.pair_weights}[kind]
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, ids, torch.ones_like(batch.pair_weights) if weights is None else weights)
    expected.backward()
    loss = reuse_loss(gates, ids, weights)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert not gates.grad[:, 0].any()
