"""The load-balancing loss against hand-worked values and a loop over tokens."""

import pytest
import torch

from stickymoe.losses import load_balancing_loss
from stickymoe.losses.load_balancing import count_slots


def naive(gates, ids, mask):
    slots, means, tokens = [0] * gates.shape[2], [0.0] * gates.shape[2], 0
    for b in range(gates.shape[0]):
        for t in range(gates.shape[1]):
            if mask is not None and not mask[b, t]:
                continue
            tokens += 1
            for slot in ids[b, t].tolist():
                slots[slot] += 1
            for e in range(gates.shape[2]):
                means[e] = means[e] + gates[b, t, e]
    return len(slots) * sum(f / sum(slots) * p / tokens for f, p in zip(slots, means, strict=True))


def test_a_hand_worked_batch():
    # expert 0 gets 3 of 4 slots; mean gates are .7 and .3: 2 (3/4 .7 + 1/4 .3)
    gates = torch.tensor([[[0.9, 0.1], [0.8, 0.2], [0.8, 0.2], [0.3, 0.7]]])
    ids = torch.tensor([[[0], [0], [0], [1]]])
    assert load_balancing_loss(gates, ids).item() == pytest.approx(1.2)


def test_it_is_one_at_uniform_and_the_number_of_experts_at_collapse():
    even = torch.full((1, 4, 4), 0.25)
    assert load_balancing_loss(even, torch.arange(4)[None, :, None]).item() == pytest.approx(1)
    one_hot = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 4, 4)
    assert load_balancing_loss(one_hot, torch.zeros(1, 4, 1, dtype=torch.int64)).item() == pytest.approx(4)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("top_k", [1, 3])
def test_value_and_gradient_equal_a_double_precision_loop(make_batch, padded, top_k):
    batch = make_batch(seed=4, padded=padded, top_k=top_k)
    gates, ids = batch.gates.detach()[0].requires_grad_(), batch.ids[0].int()
    slow = gates.detach().double().requires_grad_()
    expected = naive(slow, ids, batch.mask)
    expected.backward()
    loss = load_balancing_loss(gates, ids, batch.mask)
    loss.backward()
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gates.grad, slow.grad.float(), rtol=1e-5, atol=1e-6)
    assert gates.grad.abs().sum() > 0


def test_slots_are_counted_for_each_layer_of_a_stack(make_batch):
    batch = make_batch(seed=5, layers=3)
    counts = count_slots(batch.ids, 5, batch.mask)
    for layer in range(3):
        real = batch.ids[layer][batch.mask]
        assert counts[layer].tolist() == [int((real == e).sum()) for e in range(5)]
