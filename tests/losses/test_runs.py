"""Windows and lags stay within one document's real tokens."""

import torch

from stickymoe.losses.runs import count_lagged_pairs, lag_weights, window_starts

CPU = torch.device("cpu")


def test_windows_are_counted_from_the_start_of_a_run_and_padding_is_a_window_of_its_own():
    places = torch.arange(8)[None]
    mask = torch.tensor([[False, True, True, True, True, False, True, True]])
    docs = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 2]])
    assert window_starts(places, 2, mask, docs, torch.Size((1, 8))).tolist() == [[0, 1, 1, 3, 4, 5, 6, 6]]
    assert window_starts(places, 3, None, None, torch.Size((1, 8))).tolist() == [[0, 0, 0, 3, 3, 3, 6, 6]]


def test_a_distant_pair_has_the_least_weight_on_its_way():
    weights = torch.tensor([[1.0, 0.5, 1.0, 0.0]])
    assert lag_weights(weights, 1, (1, 5), CPU).tolist() == [[1.0, 0.5, 1.0, 0.0]]
    assert lag_weights(weights, 2, (1, 5), CPU).tolist() == [[0.5, 0.5, 0.0]]
    assert lag_weights(weights > 0.5, 4, (1, 5), CPU).tolist() == [[0.0]]


def test_rows_shorter_than_a_lag_have_no_such_pair():
    for seq, lag in ((0, 1), (1, 1), (4, 4), (3, 16)):
        for weights in (None, torch.ones(2, max(seq - 1, 0))):
            assert lag_weights(weights, lag, (2, seq), CPU).shape == (2, 0)
    assert count_lagged_pairs(None, (1, 2, 4), (3, 4), CPU).item() == 3 * (3 + 2)
