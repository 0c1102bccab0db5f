"""Diagnostics against hand-worked values and loops."""

import math

import pytest
import torch

from stickymoe.losses import diagnose, gate_entropy_bits, gate_margin, switch_rate
from stickymoe.routing import Routing, valid_pairs


def test_a_hand_worked_switch_rate_looks_at_the_top_expert_only():
    # top-1   0  0  1  1  0      switches at pairs 2 and 4
    ids = torch.tensor([[[0, 1], [0, 2], [1, 0], [1, 2], [0, 1]]])
    assert switch_rate(ids).item() == pytest.approx(0.5)
    assert switch_rate(ids, torch.tensor([[True, True, False, False]])).item() == pytest.approx(0.5)
    assert switch_rate(ids, torch.tensor([[True, False, True, False]])).item() == 0


def test_entropy_and_margin_at_both_ends():
    one_hot, flat = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]]), torch.full((1, 1, 4), 0.25)
    assert (gate_entropy_bits(one_hot).item(), gate_margin(one_hot).item()) == (0, 1)
    assert (gate_entropy_bits(flat).item(), gate_margin(flat).item()) == (pytest.approx(2), 0)
    assert gate_margin(torch.tensor([[[0.1, 0.6, 0.3]]])).item() == pytest.approx(0.3)
    assert gate_margin(torch.ones(1, 1, 1)).item() == 1


def test_all_of_them_equal_loops_over_the_real_tokens(make_batch):
    batch = make_batch(seed=20, layers=3)
    found = diagnose(
        Routing(
            tuple(batch.logits), tuple(batch.gates), tuple(batch.ids), tuple(batch.ids.float()), batch.mask, batch.docs
        )
    )
    pairs = valid_pairs(batch.mask, batch.docs)
    real = [(b, t) for b in range(3) for t in range(9) if batch.mask[b, t]]
    for layer in range(3):
        gates, ids = batch.gates[layer].detach().double(), batch.ids[layer]
        switched = [bool(ids[b, t, 0] != ids[b, t + 1, 0]) for b in range(3) for t in range(8) if pairs[b, t]]
        entropy = [-sum(p * math.log2(p) for p in gates[b, t].tolist()) for b, t in real]
        margin = [sorted(gates[b, t].tolist())[-1] - sorted(gates[b, t].tolist())[-2] for b, t in real]
        load = [sum(e in ids[b, t].tolist() for b, t in real) / len(real) for e in range(5)]
        assert found["switch_rate"][layer].item() == pytest.approx(sum(switched) / len(switched))
        assert found["gate_entropy_bits"][layer].item() == pytest.approx(sum(entropy) / len(real), rel=1e-5)
        assert found["gate_margin"][layer].item() == pytest.approx(sum(margin) / len(real), rel=1e-5)
        assert found["load"][layer].tolist() == pytest.approx(load)
        assert found["busiest_share"][layer].item() == pytest.approx(max(load))
    assert not any(value.requires_grad for value in found.values())


def test_garbage_at_padding_is_not_seen_and_nothing_real_is_nan(make_batch):
    batch = make_batch(seed=21)
    mask = batch.mask
    gates = torch.where(mask[..., None], batch.gates.detach(), math.nan)
    ids = torch.where(mask[..., None], batch.ids, 99)

    def diagnosed(mask):
        return diagnose(Routing(tuple(gates), tuple(gates), tuple(ids), tuple(ids.float()), mask, batch.docs))

    assert all(value.isfinite().all() for value in diagnosed(mask).values())
    assert all(value.isnan().all() for value in diagnosed(torch.zeros_like(mask)).values())
