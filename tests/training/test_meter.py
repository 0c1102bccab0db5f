"""The meter: micro-batches of uneven size add up to the figures of their tokens together."""

import pytest
import torch

from stickymoe.losses import diagnose
from stickymoe.routing import Routing
from stickymoe.training.meter import Meter, summarise_steps


def routing(seed, batch, seq, mask=None):
    logits = torch.randn(2, batch, seq, 4, generator=torch.Generator().manual_seed(seed))
    gates = logits.softmax(dim=-1)
    weights, ids = gates.topk(2, dim=-1)
    return Routing(tuple(logits), tuple(gates), tuple(ids), tuple(weights), token_mask=mask)


def side_by_side(left, right):
    """Two routings of equal length as one batch."""
    names = ("router_logits", "gate_probs", "expert_ids", "expert_weights")
    fields = {
        name: tuple(torch.cat(pair) for pair in zip(getattr(left, name), getattr(right, name), strict=True))
        for name in names
    }
    return Routing(**fields, token_mask=torch.cat([left.token_mask, right.token_mask]))


def test_measures_of_uneven_micro_batches_are_those_of_all_tokens_together():
    few = torch.tensor([[True, True, False, False, False]])
    many = torch.tensor([[True] * 5, [True] * 4 + [False]])
    first, second = routing(1, 1, 5, few), routing(2, 2, 5, many)
    meter = Meter()
    meter.add(torch.tensor(0.25), {"consistency": torch.tensor(0.5)}, first)
    meter.add(torch.tensor(2.0), {"consistency": torch.tensor(1.0)}, second)
    meter.close_step(7, torch.tensor(3.0))
    (step,) = meter.read()
    expected = diagnose(side_by_side(first, second))
    row = summarise_steps([step])
    for name in ("switch_rate", "gate_entropy_bits", "gate_margin"):
        assert row[name] == pytest.approx(expected[name].tolist(), rel=1e-5)
    assert (step.load / step.tokens).tolist() == [pytest.approx(layer, rel=1e-5) for layer in expected["load"].tolist()]
    assert (step.tokens, step.pairs) == (11, 1 + 4 + 3)
    assert (step.step, step.cross_entropy, step.grad_norm) == (7, 2.25, 3.0)
    assert step.batch_cross_entropies == [0.25, 2.0]
    assert row["consistency"] == 1.5


def test_a_micro_batch_of_padding_changes_no_measure():
    meter, alone = Meter(), Meter()
    real = routing(1, 2, 5, torch.ones(2, 5, dtype=torch.bool))
    for each in (meter, alone):
        each.add(torch.tensor(1.0), {}, real)
    meter.add(torch.tensor(0.0), {}, routing(3, 2, 5, torch.zeros(2, 5, dtype=torch.bool)))
    for each in (meter, alone):
        each.close_step(1, None)
    with_padding, without = (summarise_steps(each.read()) for each in (meter, alone))
    assert with_padding == without


def test_every_step_is_read_once():
    meter = Meter()
    assert not meter.has_open_step
    for step in (1, 2):
        meter.add(torch.tensor(1.0), {}, routing(step, 1, 3))
        assert meter.has_open_step
        meter.close_step(step, 1.0)
    assert [step.step for step in meter.read()] == [1, 2]
    assert meter.read() == []
