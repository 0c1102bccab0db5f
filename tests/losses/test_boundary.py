"""Boundary weights relax the pair that enters a new sentence."""

import torch

from stickymoe.losses import boundary_pair_weights


def test_the_pair_after_a_full_stop_is_relaxed_not_the_one_before():
    # tokens    5  13  7  13  13      13 ends a sentence; pairs are named by their second token
    ids = torch.tensor([[5, 13, 7, 13, 13]])
    assert boundary_pair_weights(ids, [13], 0.25).tolist() == [[1, 0.25, 1, 0.25]]


def test_several_tokens_may_end_a_sentence_and_ids_may_be_a_tensor():
    ids = torch.tensor([[1, 2, 3], [3, 3, 1]], dtype=torch.int32)
    assert boundary_pair_weights(ids, torch.tensor([1, 3]), 0.0).tolist() == [[0, 1], [0, 0]]


def test_no_boundary_token_changes_nothing():
    assert boundary_pair_weights(torch.tensor([[1, 2, 3]]), [], 0.0).tolist() == [[1, 1]]


def test_one_token_has_no_pair():
    assert boundary_pair_weights(torch.tensor([[1], [2]]), [1], 0.5).shape == (2, 0)
