"""The anchor loss against hand-worked values and a loop over tokens."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import anchor_loss


def naive(gates, window, mask, docs, detach_anchor):
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(gates.shape[0]):
        run = []  # places of the running document's real tokens
        for t in range(gates.shape[1]):
            real = mask is None or bool(mask[b, t])
            broken = not run or run[-1] != t - 1 or (docs is not None and docs[b, t] != docs[b, t - 1])
            if not real:
                continue
            run = [t] if broken else [*run, t]
            position = len(run) - 1
            first = window * (position // window)
            anchor = gates[b, run[first]]
            if detach_anchor:
                anchor = anchor.detach()
            total = total + (position - first) / window * ((gates[b, t] - anchor) ** 2).sum()
            count += 1
    return total / count if count else total


def test_a_hand_worked_window():
    # W = 3      anchor  1/3     2/3    anchor
    # gates     (1, 0)  (0, 1)  (1, 0)  (0, 1)      the fourth token starts a window of its own
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])
    assert anchor_loss(gates, 3).item() == pytest.approx((1 / 3 * 2) / 4)
    assert anchor_loss(gates, 4).item() == pytest.approx((1 / 4 * 2 + 3 / 4 * 2) / 4)
    assert anchor_loss(gates, 1).item() == 0


def test_a_document_that_begins_in_the_row_begins_a_window():
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    assert anchor_loss(gates, 4, document_ids=torch.tensor([[5, 3, 3]])).item() == 0
    assert anchor_loss(gates, 4, document_ids=torch.tensor([[5, 5, 5]])).item() == pytest.approx((0.5 + 1) / 3)


def test_an_id_that_returns_after_another_is_a_new_document():
    gates = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]])
    assert anchor_loss(gates, 4, document_ids=torch.tensor([[1, 2, 1]])).item() == 0


@pytest.mark.parametrize("detach_anchor", [True, False])
@pytest.mark.parametrize(("padded", "packed"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("window", [2, 3, 50])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, detach_anchor, padded, packed, window):
    batch = make_batch(seed=3, seq=11, padded=padded, packed=packed)
    gates = batch.gates.detach()[0].requires_grad_()
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, window, batch.mask, batch.docs, detach_anchor)
    expected.backward()
    loss = anchor_loss(gates, window, batch.mask, batch.docs, detach_anchor)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert gates.grad.abs().sum() > 0


def test_a_fixed_anchor_gets_no_gradient():
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], requires_grad=True)
    anchor_loss(gates, 2).backward()
    assert gates.grad[0, 0].tolist() == [0, 0]
    assert gates.grad[0, 1].abs().sum() > 0


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_below_one_is_refused(window):
    with pytest.raises(SettingError, match=rf"^window must be >= 1, got {window}"):
        anchor_loss(torch.rand(1, 2, 2), window)
