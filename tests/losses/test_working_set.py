"""The working-set loss against hand-worked values and a loop over windows."""

import math

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import working_set_loss
from stickymoe.losses.working_set import WINDOW


def naive(gates, window, mask, docs):
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(gates.shape[0]):
        windows, last = [], None
        for t in range(gates.shape[1]):
            if mask is not None and not mask[b, t]:
                continue
            goes_on = last == t - 1 and (docs is None or docs[b, t] == docs[b, t - 1])
            last = t
            if not goes_on:
                windows.append([])
                position = 0
            if position and position % window == 0:
                windows.append([])
            windows[-1].append(t)
            position += 1
        for places in windows:
            mean = sum(gates[b, t] for t in places) / len(places)
            total = total - len(places) * (mean * mean.log()).sum()
            count += len(places)
    return total / count if count else total


def test_hand_worked_windows_weigh_as_many_tokens_as_they_have():
    # W = 2: (1, 0) and (0, 1) have a flat mean, log 2; the third token stands alone in its window, entropy 0
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    assert working_set_loss(gates, 2).item() == pytest.approx(2 / 3 * math.log(2))
    assert working_set_loss(gates, 1).item() == pytest.approx(0, abs=1e-30)
    assert working_set_loss(gates[:, [0, 0, 0]], 2).item() == pytest.approx(0, abs=1e-30)
    third = 1 / 3
    assert working_set_loss(gates, 3).item() == pytest.approx(-third * math.log(third) - 2 * third * math.log(2 / 3))


def test_windows_begin_anew_with_a_document():
    gates = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    assert working_set_loss(gates, 2, document_ids=torch.tensor([[8, 3, 3]])).item() == pytest.approx(0, abs=1e-30)
    assert working_set_loss(gates, 3, document_ids=torch.tensor([[1, 2, 1]])).item() == pytest.approx(0, abs=1e-30)


def test_flat_gates_give_the_logarithm_of_the_number_of_experts():
    assert working_set_loss(torch.full((2, 7, 5), 0.2), 3).item() == pytest.approx(math.log(5))


@pytest.mark.parametrize(("padded", "packed"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("window", [1, 3, WINDOW])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, padded, packed, window):
    batch = make_batch(seed=4, seq=20, padded=padded, packed=packed)
    gates = batch.gates.detach()[0].requires_grad_()
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, window, batch.mask, batch.docs)
    expected.backward()
    loss = working_set_loss(gates, window, batch.mask, batch.docs)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert gates.grad.abs().sum() > 0


def test_experts_that_no_token_wants_leave_the_gradient_finite():
    logits = torch.tensor([[[0.0, -300.0], [0.1, -300.0]]], requires_grad=True)
    working_set_loss(logits.softmax(dim=-1), 2).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_below_one_is_refused(window):
    with pytest.raises(SettingError, match=rf"^window must be >= 1, got {window}"):
        working_set_loss(torch.rand(1, 2, 2), window)
