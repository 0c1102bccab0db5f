"""The router z-loss against hand-worked values and a loop over tokens."""

import math

import pytest
import torch

from stickymoe.losses import router_z_loss


def naive(logits, mask):
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(logits.shape[0]):
        for t in range(logits.shape[1]):
            if mask is None or mask[b, t]:
                total = total + sum(logits[b, t, e].exp() for e in range(logits.shape[2])).log() ** 2
                count += 1
    return total / count if count else total


def test_a_hand_worked_token():
    assert router_z_loss(torch.zeros(1, 1, 4)).item() == pytest.approx(math.log(4) ** 2)
    assert router_z_loss(torch.full((1, 1, 4), -math.log(4))).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("padded", [False, True])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, padded):
    batch = make_batch(seed=6, padded=padded)
    logits = batch.logits.detach()[0].requires_grad_()
    slow = logits.detach().double().requires_grad_()
    expected = naive(slow, batch.mask)
    expected.backward()
    loss = router_z_loss(logits, batch.mask)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert logits.grad.abs().sum() > 0


def test_huge_logits_do_not_overflow():
    logits = torch.tensor([[[1e4, 0.0]]], requires_grad=True)
    loss = router_z_loss(logits)
    loss.backward()
    assert loss.item() == pytest.approx(1e8)
    assert logits.grad.isfinite().all()
