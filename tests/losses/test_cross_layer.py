"""The cross-layer loss against hand-worked values and a loop over layer pairs."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import cross_layer_loss


def naive(gates, mask):
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(gates.shape[1]):
        for t in range(gates.shape[2]):
            if mask is None or mask[b, t]:
                for layer in range(gates.shape[0] - 1):
                    total = total + ((gates[layer, b, t] - gates[layer + 1, b, t]) ** 2).sum()
                count += 1
    return total / count if count else total


def test_a_hand_worked_token_adds_up_over_layer_pairs():
    layers = [torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[0.5, 0.5]]])]
    assert cross_layer_loss(layers).item() == pytest.approx(2 + 0.5)


def test_one_layer_has_no_neighbour_and_no_gradient():
    gates = torch.rand(1, 2, 3, requires_grad=True)
    loss = cross_layer_loss([gates])
    loss.backward()
    assert loss.item() == 0
    assert not gates.grad.any()


@pytest.mark.parametrize("padded", [False, True])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, padded):
    batch = make_batch(seed=7, layers=4, padded=padded)
    slow = batch.gates.detach().double().requires_grad_()
    expected = naive(slow, batch.mask)
    expected.backward()
    loss = cross_layer_loss(tuple(batch.gates), batch.mask)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(batch.gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert torch.equal(loss, cross_layer_loss(batch.gates, batch.mask))


def test_layers_with_different_numbers_of_experts_are_refused():
    with pytest.raises(SettingError, match=r"of one shape in every layer, got \[\(1, 2, 3\), \(1, 2, 4\)\]"):
        cross_layer_loss([torch.rand(1, 2, 3), torch.rand(1, 2, 4)])
