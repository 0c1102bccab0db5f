"""Vocabulary projection and cross-entropy in one, in chunks of tokens, so that the full logits never exist."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import cross_entropy

from stickymoe.core.errors import SettingError
from stickymoe.model.tiles.fused import can_fuse, fused_cross_entropy

IGNORED = -100
# 1024 rows of bfloat16 logits of a 50,257 vocabulary are 103 MB; benchmarks/cross_entropy.py compares the sizes
CHUNK_TOKENS = 1024
# Rows of the weight's gradient made at a time in bfloat16: at width 128 they are 2 MB, which a core's cache holds
SLICE_ROWS = 8192


@torch.compiler.disable  # type: ignore[untyped-decorator]  # nothing to fuse: its time is in matrix products
def linear_cross_entropy(
    hidden_states: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
    num_items: Tensor | int | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy of `hidden_states @ weight.T` against `targets`.

        loss = sum over counted tokens of  (logsumexp(z[t]) - z[t, target]),  divided by num_items

    The gradients are made in the forward pass, chunk by chunk, and scaled in the backward pass: three matrix products
    instead of the four of a recomputation. Under autocast the products run in its dtype, but never in float16, which
    has no room for the small probabilities of a large vocabulary.

    Args:
        hidden_states: Final hidden states.
        weight: Rows of the vocabulary projection.
        targets: Ids in [0, vocab); `IGNORED` (-100) does not count.
        num_items: Divisor; the number of counted tokens if not given.

    Returns:
        Scalar, float32 (float64 from float64); 0 with zero gradients where nothing counts.

    Raises:
        SettingError: A target outside the vocabulary; seen on the CPU only, where looking costs nothing.
    """
    _require_in_vocabulary(targets, len(weight))
    counted = targets != IGNORED
    divisor = counted.sum() if num_items is None else torch.as_tensor(num_items, device=targets.device)
    scale = counted.to(_sum_dtype(hidden_states)) / divisor.where(divisor > 0, 1)
    if torch.is_grad_enabled() and (hidden_states.requires_grad or weight.requires_grad):
        dtype = _product_dtype(hidden_states)
        loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden_states, weight, targets.where(counted, 0), scale, dtype
        )
        return loss
    return torch.dot(token_cross_entropy(hidden_states, weight, targets), scale)


@torch.no_grad()
def token_cross_entropy(
    hidden_states: Float[Tensor, "tokens hidden"],
    weight: Float[Tensor, "vocab hidden"],
    targets: Int[Tensor, " tokens"],
) -> Float[Tensor, " tokens"]:
    """Cross-entropy of each token apart, for evaluation: no gradient, never more than a chunk's logits.

    Args:
        hidden_states: Final hidden states.
        weight: Rows of the vocabulary projection.
        targets: Ids in [0, vocab) or `IGNORED` (-100).

    Returns:
        Nats a token, float32 (float64 from float64); 0 where the target is ignored.

    Raises:
        SettingError: A target outside the vocabulary; seen on the CPU only.
    """
    _require_in_vocabulary(targets, len(weight))
    dtype, sum_dtype = _product_dtype(hidden_states), _sum_dtype(hidden_states)
    losses = hidden_states.new_empty(len(targets), dtype=sum_dtype)
    columns = weight.to(dtype).t()
    for start in range(0, len(targets), CHUNK_TOKENS):
        part = slice(start, start + CHUNK_TOKENS)
        logits = torch.mm(hidden_states[part].to(dtype), columns).to(sum_dtype)
        losses[part] = cross_entropy(logits, targets[part], ignore_index=IGNORED, reduction="none")
    return losses


def _require_in_vocabulary(targets: Tensor, vocab: int) -> None:
    if targets.device.type != "cpu" or torch.compiler.is_compiling():
        return
    outside = targets[((targets < 0) | (targets >= vocab)) & (targets != IGNORED)]
    if len(outside):
        raise SettingError.broken(
            "labels", f"in [0, {vocab}) or {IGNORED}", int(outside[0]), "use the tokenizer the model was made for"
        )


def _product_dtype(hidden: Tensor) -> torch.dtype:
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return torch.float32 if dtype == torch.float16 else dtype


def _sum_dtype(hidden: Tensor) -> torch.dtype:
    return torch.promote_types(hidden.dtype, torch.float32)


class _LinearCrossEntropy(torch.autograd.Function):
    """Weighted sum of the cross-entropies; the gradients of hidden states and weight are ready when forward returns."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad_hidden: Tensor | None
        grad_weight: Tensor | None
        if can_fuse(hidden, weight, dtype):
            losses, grad_hidden, grad_weight = fused_cross_entropy(hidden, weight, targets, scale)
        else:
            losses, grad_hidden, grad_weight = _in_chunks(
                hidden, weight, targets, scale, dtype, needs_hidden=needs_hidden, needs_weight=needs_weight
            )
        ctx.save_for_backward(grad_hidden if needs_hidden else None, grad_weight if needs_weight else None)
        return losses.where(scale > 0, 0).dot(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        # A gradient of 1, the usual one, spares a pass over a matrix of the vocabulary's size
        if grad_output.device.type != "cpu" or grad_output != 1:
            grad_hidden = None if grad_hidden is None else grad_hidden * grad_output
            grad_weight = None if grad_weight is None else grad_weight * grad_output
        return grad_hidden, grad_weight, None, None, None


def _in_chunks(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    scale: Tensor,
    dtype: torch.dtype,
    *,
    needs_hidden: bool,
    needs_weight: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the losses and the gradients that are needed, with torch's products on chunks of tokens."""
    sum_dtype = _sum_dtype(hidden)
    inputs, rows_of_weight = hidden.to(dtype), weight.to(dtype)
    # Laid out for the product that reads it: transposed on the way, it takes twice the time on the CPU
    columns_of_weight = rows_of_weight.t().contiguous()
    # Weighing the small matrices, not the large one of probabilities, spares passes over that
    weighed_inputs = (hidden * scale[:, None]).to(dtype)
    grad_hidden = torch.empty_like(inputs) if needs_hidden else None
    # The first chunk writes it; without one it is 0
    new_total = torch.empty_like if len(hidden) else torch.zeros_like
    grad_weight = new_total(weight, dtype=sum_dtype) if needs_weight else None
    chunk = min(CHUNK_TOKENS, len(hidden))
    buffer = inputs.new_empty(chunk, len(weight))
    rows = torch.arange(chunk, device=hidden.device)
    losses = torch.empty_like(scale)
    for start in range(0, len(hidden), max(chunk, 1)):
        part = slice(start, start + chunk)
        index = targets[part, None]
        probs = buffer[: len(index)]
        torch.mm(inputs[part], columns_of_weight, out=probs)
        torch.softmax(probs, dim=-1, out=probs)
        at_target = probs.gather(1, index)
        losses[part] = -at_target[:, 0].to(sum_dtype).log()
        # Now the gradient of the logits; not scatter_, which on the CPU walks the whole matrix
        probs[rows[: len(index)], index[:, 0]] = at_target[:, 0] - 1
        if grad_hidden is not None:
            torch.mm(probs, rows_of_weight, out=grad_hidden[part]).mul_(scale[part, None])
        if grad_weight is not None:
            _add_product(grad_weight, probs.t(), weighed_inputs[part], first=start == 0)
    _restore_underflown(losses, hidden, weight, targets)
    return losses, grad_hidden, grad_weight


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, first: bool) -> None:
    """Add `left @ right` to `total`, whose dtype may be wider; by slices, so that the product stays in the cache.

    The first product is written instead, over whatever an empty `total` holds.
    """
    if left.dtype == total.dtype:
        total.addmm_(left, right, beta=0 if first else 1)
        return
    for start in range(0, len(total), SLICE_ROWS):
        part = slice(start, start + SLICE_ROWS)
        product = torch.mm(left[part], right)
        if first:
            total[part] = product
        else:
            total[part] += product


def _restore_underflown(losses: Tensor, hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    """Compute anew the losses over 87 nats: a probability so small has lost its digits, or is 0."""
    lost = losses > 87
    if lost.any():
        losses[lost] = token_cross_entropy(hidden[lost], weight, targets[lost])
