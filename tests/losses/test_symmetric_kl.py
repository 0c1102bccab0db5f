"""The smoothness and lag losses against hand-worked values and a loop over pairs."""

import math

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import Objective, lag_loss, smoothness_loss
from stickymoe.losses.symmetric_kl import REMOE_LAGS, symmetric_kl_sums
from stickymoe.routing import Routing, valid_pairs


def divergence(p, q):
    return sum(a * (a / b).log() + b * (b / a).log() for a, b in zip(p, q, strict=True))


def naive(gates, weight_of, lags):
    """`weight_of(row, t)` weighs the neighbours (t-1, t); a distant pair has the least weight on its way."""
    total, weight = torch.zeros((), dtype=torch.float64), 0.0
    for b in range(gates.shape[0]):
        for lag in lags:
            for t in range(lag, gates.shape[1]):
                w = min(weight_of(b, step) for step in range(t - lag + 1, t + 1))
                if w > 0:
                    total = total + w * divergence(gates[b, t], gates[b, t - lag])
                    weight += w
    return total / weight if weight else total


def weights_of(pairs):
    return lambda b, t: 1.0 if pairs is None else float(pairs[b, t - 1])


def test_a_hand_worked_pair_is_the_difference_times_the_difference_of_logarithms():
    # (.8 - .5) log(.8 / .5) + (.2 - .5) log(.2 / .5)
    gates = torch.tensor([[[0.5, 0.5], [0.8, 0.2], [0.8, 0.2]]])
    one = 0.3 * math.log(1.6) - 0.3 * math.log(0.4)
    assert smoothness_loss(gates).item() == pytest.approx(one / 2)
    assert smoothness_loss(gates, torch.tensor([[True, False]])).item() == pytest.approx(one)
    assert smoothness_loss(gates, torch.tensor([[0.25, 1.0]])).item() == pytest.approx(0.25 * one / 1.25)
    assert lag_loss(gates, lags=(1, 2)).item() == pytest.approx(2 * one / 3)  # pairs (0,1) (1,2) (0,2)
    assert lag_loss(gates, lags=(2, 4)).item() == pytest.approx(one)  # no row is long enough for the other lag


def test_a_distant_pair_counts_within_one_document_only_and_over_real_tokens_only():
    gates = torch.tensor([[[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]])
    far = 2 * 0.8 * math.log(9)
    assert lag_loss(gates, lags=(2,)).item() == pytest.approx(far)
    assert lag_loss(gates, document_ids=torch.tensor([[4, 7, 4]]), lags=(2,)).item() == 0  # the id came back
    assert lag_loss(gates, token_mask=torch.tensor([[True, False, True]]), lags=(2,)).item() == 0


@pytest.mark.parametrize("lags", [(1,), (2, 3), REMOE_LAGS])
@pytest.mark.parametrize(("padded", "packed"), [(False, False), (True, False), (False, True), (True, True)])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, lags, padded, packed):
    batch = make_batch(seed=5, seq=19, padded=padded, packed=packed)
    gates = batch.gates.detach()[0].requires_grad_()
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, weights_of(valid_pairs(batch.mask, batch.docs)), lags)
    expected.backward()
    loss = lag_loss(gates, batch.mask, batch.docs, lags)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert gates.grad.abs().sum() > 0


def test_both_terms_take_boundary_weights_and_a_sentence_that_ends_on_the_way_counts_once(make_batch):
    batch = make_batch(seed=6, layers=1, seq=12, padded=True)
    input_ids = torch.randint(0, 3, (3, 12), generator=torch.Generator().manual_seed(1))
    routing = Routing(
        tuple(batch.logits), tuple(batch.gates), tuple(batch.ids), tuple(batch.ids.float()), batch.mask, batch.docs
    )
    found = Objective(smoothness=1, lag=1, lags=(1, 3, 4), boundary_weight=0.25, boundary_token_ids=[1])(
        routing, input_ids
    )
    pairs = torch.where(input_ids[:, :-1] == 1, 0.25, 1.0) * valid_pairs(batch.mask, batch.docs)
    slow = batch.gates.detach()[0].double()
    assert found.terms["smoothness"].item() == pytest.approx(naive(slow, weights_of(pairs), (1,)).item(), rel=1e-5)
    assert found.terms["lag"].item() == pytest.approx(naive(slow, weights_of(pairs), (1, 3, 4)).item(), rel=1e-5)


def test_smoothness_is_the_lag_term_of_one_lag(make_batch):
    batch = make_batch(seed=7)
    neighbours = smoothness_loss(batch.gates[0], valid_pairs(batch.mask, batch.docs))
    torch.testing.assert_close(neighbours, lag_loss(batch.gates[0], batch.mask, batch.docs, (1,)))


def test_experts_that_underflow_leave_value_and_gradient_finite():
    for depth in (-80.0, -300.0):
        logits = torch.tensor([[[0.0, depth], [depth, 0.0], [0.0, 0.0]]], requires_grad=True)
        loss = lag_loss(logits.softmax(dim=-1), lags=(1, 2))
        loss.backward()
        assert 70 < loss.item() < 300
        assert logits.grad.isfinite().all()
        assert bool(logits.grad.any()) == (depth == -80.0)  # a softmax that has underflowed lets nothing through


def test_nearly_equal_gates_keep_their_digits():
    gates = torch.tensor([[[0.5, 0.5], [0.5 + 1e-4, 0.5 - 1e-4]]])
    exact = naive(gates.double(), weights_of(None), (1,)).item()
    assert exact < 1e-7
    assert smoothness_loss(gates).item() == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("lags", [(0,), (1, -2)])
def test_a_lag_below_one_is_refused(lags):
    with pytest.raises(SettingError, match=r"^lags must be >= 1, got "):
        lag_loss(torch.rand(1, 3, 2), lags=lags)


def test_masks_made_for_other_rows_are_refused_not_stretched():
    with pytest.raises(SettingError, match=r"^token_mask must be of shape \(3, 8\), got \(1, 8\)"):
        lag_loss.__wrapped__(torch.rand(3, 8, 2), torch.ones(1, 8, dtype=torch.bool))
    with pytest.raises(SettingError, match=r"^mask must be of shape \(3, 7\), got \(1, 7\)"):
        symmetric_kl_sums.__wrapped__(torch.rand(3, 8, 2), torch.ones(1, 7, dtype=torch.bool), (1,))
