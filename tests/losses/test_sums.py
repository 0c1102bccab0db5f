"""Sums leave out what does not count, and add up over batches for every term."""

import math

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.losses import TERMS, LayerStack
from stickymoe.losses.sums import add_up, keep_only, mean_of
from stickymoe.routing import Routing


def test_places_that_do_not_count_become_zeros_in_value_and_gradient():
    values = torch.tensor([[[1.0, math.nan], [math.nan, 4.0]]], requires_grad=True)
    for counted in (torch.tensor([[False, False]]), torch.tensor([[0.0, 0.0]])):
        values.grad = None
        kept = keep_only(values, counted)
        kept.square().sum().backward()
        assert not kept.any()
        assert not values.grad.any()


def test_sums_are_weighted_and_the_mean_of_nothing_is_zero():
    values = torch.tensor([[2.0, 4.0]])
    assert [part.item() for part in add_up(values, None)[:2]] == [6, 2]
    assert [part.item() for part in add_up(values, torch.tensor([[0.5, 0.25]]))[:2]] == [2, 0.75]
    assert mean_of(add_up(values, torch.tensor([[0.25, 0.0]]))).item() == 2
    assert mean_of(add_up(values * 0, torch.tensor([[False, False]]))).item() == 0


def test_a_mask_made_for_other_rows_is_refused_not_stretched():
    # `__wrapped__`: users run without the shape checks that tests have
    with pytest.raises(SettingError, match=r"mask must be of shape \(3, 8\), got \(1, 8\)"):
        keep_only.__wrapped__(torch.rand(3, 8, 2), torch.ones(1, 8, dtype=torch.bool))


def stack_of(batch, rows, weighted):
    routing = Routing(
        tuple(batch.logits[:, rows]),
        tuple(batch.gates[:, rows]),
        tuple(batch.ids[:, rows]),
        tuple(batch.ids[:, rows].float()),
        batch.mask[rows],
        batch.docs[rows],
        tuple(batch.reference[:, rows]),
    )
    pairs = batch.pair_weights[rows] if weighted else routing.valid_pairs()
    return LayerStack(routing, batch.gates[:, rows], pairs, batch.window, (1, 2, 4), 3)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_sums_of_two_batches_added_are_the_sums_of_both(make_batch, name, weighted):
    batch = make_batch(seed=10, batch=5)
    whole = TERMS[name].sums(stack_of(batch, slice(0, 5), weighted))
    parts = [TERMS[name].sums(stack_of(batch, rows, weighted)) for rows in (slice(0, 2), slice(2, 5))]
    for together, first, second in zip(whole, *parts, strict=True):
        if together is not None:
            torch.testing.assert_close(first + second, together)
