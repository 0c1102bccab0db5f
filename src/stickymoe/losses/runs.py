"""Runs: unbroken stretches of one document's real tokens, and the windows and lags that are counted within them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.losses.sums import require_shape
from stickymoe.routing import valid_pairs


def window_starts(
    places: Int[Tensor, "1 seq"],
    window: int,
    token_mask: Bool[Tensor, "batch seq"] | None,
    document_ids: Int[Tensor, "batch seq"] | None,
    tokens: torch.Size,
) -> Int[Tensor, "rows seq"]:
    """For each place, the place of the first token of its window; windows are counted from the start of its run.

    Padding never shares a window with a real token. One row where all rows are alike.
    """
    return places - (places - _run_starts(places, token_mask, document_ids, tokens)) % window


def _run_starts(
    places: Int[Tensor, "1 seq"],
    token_mask: Bool[Tensor, "batch seq"] | None,
    document_ids: Int[Tensor, "batch seq"] | None,
    tokens: torch.Size,
) -> Int[Tensor, "rows seq"]:
    """For each place, where its run began; a padded place is a run of its own."""
    for name, given in (("token_mask", token_mask), ("document_ids", document_ids)):
        if given is not None:
            require_shape(name, given, tokens)
    pairs = valid_pairs(token_mask, document_ids)
    if pairs is None:
        return torch.zeros_like(places)
    continues = torch.nn.functional.pad(pairs, (1, 0), value=False)
    return torch.where(continues, 0, places).cummax(dim=-1).values


def lag_weights(
    pair_weights: Bool[Tensor, "batch pairs"] | Float[Tensor, "batch pairs"] | None,
    lag: int,
    tokens: tuple[int, int],
    device: torch.device,
) -> Float[Tensor, "batch lagged"]:
    """Weigh the pairs (t-lag, t), float32: the least weight of the neighbours from t-lag to t.

    So a pair counts only within one run, and a sentence that ends anywhere on the way counts once.

    Args:
        pair_weights: Which neighbours count, or how much; None where all count fully.
        lag: Distance in tokens, at least 1.
        tokens: Batch and sequence length.
        device: Where the weights shall lie.
    """
    batch, seq = tokens
    if lag >= seq:
        return torch.zeros(batch, 0, device=device)
    if pair_weights is None:
        return torch.ones(batch, seq - lag, device=device)
    return pair_weights.float().unfold(-1, lag, 1).amin(dim=-1)


def count_lagged_pairs(
    pair_weights: Bool[Tensor, "batch pairs"] | Float[Tensor, "batch pairs"] | None,
    lags: Sequence[int],
    tokens: tuple[int, int],
    device: torch.device,
) -> Float[Tensor, ""]:
    """Return the weight of the pairs of all lags together."""
    return torch.stack([lag_weights(pair_weights, lag, tokens, device).sum() for lag in lags]).sum()
