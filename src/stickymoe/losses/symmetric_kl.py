"""The smoothness and lag losses: gates of tokens of one document, next to each other or further apart, should agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.core.settings import require_at_least
from stickymoe.losses.runs import count_lagged_pairs, lag_weights
from stickymoe.losses.sums import Sums, mean_of, require_shape
from stickymoe.losses.term import Term
from stickymoe.routing import valid_pairs as pairs_of

REMOE_LAGS = (1, 2, 4, 8, 16)
# Gates below it count as it: the logarithm of an expert that underflowed stays finite, and so does its gradient
_SMALLEST = torch.finfo(torch.float32).tiny


def smoothness_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    valid_pairs: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None = None,
) -> Float[Tensor, ""]:
    """Mean symmetric Kullback-Leibler divergence between the gates of neighbouring tokens, in nats.

        loss = mean over pairs (t-1, t) of  KL(g[t] || g[t-1]) + KL(g[t-1] || g[t])

    Both sides get gradient, as in ReMoE. Flat gates score as well as sticky ones: read it beside the switch rate.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        valid_pairs: Which pairs count, or their weights w in [0, 1], giving sum(w d) / sum(w); all fully if not given.

    Returns:
        Scalar >= 0, float32. 0: every token repeats its predecessor's gates, or no pair counts.

    Source: ReMoE, smoothness. Its weight is open in what we know of the paper.
    """
    return mean_of(symmetric_kl_sums(gate_probs, valid_pairs, (1,)))


def lag_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    token_mask: Bool[Tensor, "batch seq"] | None = None,
    document_ids: Int[Tensor, "batch seq"] | None = None,
    lags: Sequence[int] = REMOE_LAGS,
) -> Float[Tensor, ""]:
    """Mean symmetric Kullback-Leibler divergence between the gates of tokens some way apart, in nats.

        loss = mean over lags d and pairs (t-d, t) of  KL(g[t] || g[t-d]) + KL(g[t-d] || g[t])

    A pair counts where both tokens are real and everything between them is of the same document. All pairs of all lags
    are one mean: short documents have few distant pairs, and these then weigh little.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        token_mask: True where a token is real; all are if not given.
        document_ids: A document begins where the id differs from its predecessor's; one document a row if not given.
        lags: Distances in tokens, each at least 1.

    Returns:
        Scalar >= 0, float32. 0: gates do not change within a document, or no pair counts.

    Raises:
        SettingError: A lag is below 1.

    Source: ReMoE, lag term, with these lags. Its weight is open in what we know of the paper, and so is whether every
    lag counts alike or every pair; here it is every pair.
    """
    for lag in lags:
        require_at_least("lags", lag, 1, "ReMoE's are 1, 2, 4, 8, 16")
    for name, given in (("token_mask", token_mask), ("document_ids", document_ids)):
        if given is not None:
            require_shape(name, given, gate_probs.shape[:2])
    return mean_of(symmetric_kl_sums(gate_probs, pairs_of(token_mask, document_ids), lags))


def symmetric_kl_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    pair_weights: Bool[Tensor, "batch seq-1"] | Float[Tensor, "batch seq-1"] | None,
    lags: Sequence[int],
) -> Sums:
    """Sum the divergences of the pairs that count at all lags, for each layer."""
    if pair_weights is not None:
        batch, seq = gate_probs.shape[-3:-1]
        require_shape("mask", pair_weights, torch.Size((batch, max(seq - 1, 0))))
    tokens = (gate_probs.shape[-3], gate_probs.shape[-2])
    weight = count_lagged_pairs(pair_weights, lags, tokens, gate_probs.device)
    by_lag = [lag_weights(pair_weights, lag, tokens, gate_probs.device) for lag in lags]
    total: Tensor = _SymmetricKL.apply(gate_probs.float(), tuple(lags), *by_lag)  # type: ignore[no-untyped-call]
    return Sums(total, weight)


class _SymmetricKL(torch.autograd.Function):
    """Keeps the gates alone for the backward pass: differences at five lags would be ten times as much."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, lags: tuple[int, ...], *by_lag: Tensor) -> Tensor:
        """Return sum over lags and pairs of  w * sum_e (g[t] - g[t-d]) * (log g[t] - log g[t-d])."""
        ctx.save_for_backward(gates, *by_lag)
        ctx.lags = lags
        total = gates.new_zeros(gates.shape[:-3])
        for _, weights, later, earlier in _pairs(gates, lags, by_lag):
            divergence = ((later - earlier) * (_log(later) - _log(earlier))).sum(dim=-1)
            total = total + (divergence * weights).sum(dim=(-2, -1))
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the gates."""
        gates, *by_lag = ctx.saved_tensors
        found = torch.zeros_like(gates)
        scale = grads[0][..., None, None]
        for lag, weights, later, earlier in _pairs(gates, ctx.lags, by_lag):
            weighted = (scale * weights)[..., None]
            difference, logs = later - earlier, _log(later) - _log(earlier)
            found[..., lag:, :] += weighted * (logs + _over(difference, later))
            found[..., :-lag, :] -= weighted * (logs + _over(difference, earlier))
        return found, None, *(None for _ in by_lag)


def _pairs(
    gates: Tensor, lags: Sequence[int], by_lag: Sequence[Tensor]
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Yield, for each lag that the row has room for, lag, weights, later and earlier gates; equal where none counts.

    What does not count may hold NaN, so it is replaced before anything is computed of it.
    """
    for lag, weights in zip(lags, by_lag, strict=True):
        if lag < gates.shape[-2]:
            counted = (weights > 0)[..., None]
            later = torch.where(counted, gates[..., lag:, :], 1.0)
            yield lag, weights, later, torch.where(counted, gates[..., :-lag, :], 1.0)


def _log(gates: Tensor) -> Tensor:
    return gates.clamp(min=_SMALLEST).log()


def _over(difference: Tensor, gates: Tensor) -> Tensor:
    """The derivative of the logarithm times `difference`; 0 where the logarithm was held."""
    return torch.where(gates >= _SMALLEST, difference / gates.clamp(min=_SMALLEST), 0.0)


SMOOTHNESS = Term(
    name="smoothness",
    sums=lambda stack: symmetric_kl_sums(stack.gate_probs, stack.pair_weights, (1,)),
    over="pairs",
)
LAG = Term(
    name="lag",
    sums=lambda stack: symmetric_kl_sums(stack.gate_probs, stack.pair_weights, stack.lags),
    over="lagged_pairs",
)
