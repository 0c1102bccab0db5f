"""Sorting tokens by expert: the layout, the two copies, and their gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from stickymoe.model.dispatch import CPU_BLOCK_ROWS, collect, dispatch, layout_by_expert, sum_over_slots


def draw_ids(tokens, num_experts, top_k, seed=0):
    scores = torch.rand(tokens, num_experts, generator=torch.Generator().manual_seed(seed))
    return scores.topk(top_k, dim=1).indices


def test_a_hand_worked_layout():
    # expert 0 serves tokens 1, 2; expert 1 none; expert 2 tokens 0, 1, 2
    slots, rows, sizes = layout_by_expert(torch.tensor([[2], [0], [0], [2]]), num_experts=3)
    assert sizes == [2, 0, 2]
    assert rows.tolist() == [1, 2, 0, 3]
    assert slots.tolist() == [[2], [0], [1], [3]]


@given(
    tokens=st.integers(0, 40),
    num_experts=st.integers(1, 9),
    data=st.data(),
)
def test_every_pair_has_its_own_row_within_its_experts_share(tokens, num_experts, data):
    top_k = data.draw(st.integers(1, num_experts))
    ids = draw_ids(tokens, num_experts, top_k)
    slots, rows, sizes = layout_by_expert(ids, num_experts)
    assert len(set(slots.flatten().tolist())) == tokens * top_k
    starts = torch.tensor([0, *sizes]).cumsum(0)
    for token in range(tokens):
        for slot in range(top_k):
            row, expert = int(slots[token, slot]), int(ids[token, slot])
            assert int(rows[row]) == token
            assert starts[expert] <= row < starts[expert + 1]


def test_large_shares_are_padded_to_whole_blocks_and_no_further():
    ids = draw_ids(tokens=1000, num_experts=4, top_k=2)
    slots, rows, sizes = layout_by_expert(ids, 4)
    counts = torch.bincount(ids.flatten(), minlength=4).tolist()
    assert sizes == [-(-count // CPU_BLOCK_ROWS) * CPU_BLOCK_ROWS for count in counts]
    assert len(rows) == sum(sizes)
    assert torch.equal(rows[slots.flatten()], torch.arange(1000).repeat_interleave(2))


def test_an_expert_without_tokens_gets_no_rows_even_where_blocks_are_padded():
    _, _, sizes = layout_by_expert(torch.zeros(CPU_BLOCK_ROWS * 4, 1, dtype=torch.long), num_experts=4)
    assert sizes == [CPU_BLOCK_ROWS * 4, 0, 0, 0]


@pytest.mark.parametrize("top_k", [1, 3])
def test_dispatch_and_collect_have_the_gradients_of_indexing(top_k):
    ids = draw_ids(tokens=7, num_experts=4, top_k=top_k)
    slots, rows, _ = layout_by_expert(ids, 4)
    hidden = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    outputs = torch.randn(len(rows), 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: dispatch(x, slots, rows), hidden)
    assert gradcheck(lambda x: collect(x, slots), outputs)
    assert torch.equal(dispatch(hidden, slots, rows), hidden[rows])
    assert torch.equal(collect(outputs, slots), outputs[slots])


def test_padding_rows_give_and_take_no_gradient():
    ids = draw_ids(tokens=600, num_experts=3, top_k=1)
    slots, rows, _ = layout_by_expert(ids, 3)
    assert len(rows) > 600, "the case must have padding"
    hidden = torch.randn(600, 2, requires_grad=True)
    spread = dispatch(hidden, slots, rows)
    spread.retain_grad()
    collect(spread * 2, slots).sum().backward()
    is_padding = torch.ones(len(rows), dtype=torch.bool)
    is_padding[slots.flatten()] = False
    assert spread.grad[is_padding].abs().max() == 0
    assert torch.equal(hidden.grad, torch.full_like(hidden, 2.0))


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_slots_are_summed_to_the_bit_as_torch_sums_them(top_k, dtype):
    by_slot = torch.randn(50, top_k, 7, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    summed, wanted = sum_over_slots(by_slot), by_slot.sum(dim=1)
    assert torch.equal(summed, wanted)
    factors = torch.randn(50, 7).to(dtype)
    got, right = (torch.autograd.grad(total, by_slot, factors)[0] for total in (summed, wanted))
    assert torch.equal(got, right)
