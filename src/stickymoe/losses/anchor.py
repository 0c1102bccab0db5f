"""The anchor loss: within a window every token stays near the gates of the window's first token."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.core.settings import require_at_least
from stickymoe.losses.runs import window_starts
from stickymoe.losses.sums import Sums, add_up, keep_only, mean_of
from stickymoe.losses.term import Term


def anchor_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    window: int,
    token_mask: Bool[Tensor, "batch seq"] | None = None,
    document_ids: Int[Tensor, "batch seq"] | None = None,
    detach_anchor: bool = True,
) -> Float[Tensor, ""]:
    """Mean squared distance to the window's first gates, weighted by how far into the window the token is.

        loss = mean over real tokens t of  (t - s)/W * sum_e (g[t, e] - g[s, e])^2,   s = W * floor(t / W)

    Positions t count from the first token of an unbroken run of one document's real tokens, so padding on either side
    and other documents in the row move no window. Anchors (t = s) add 0 but are counted in the mean.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        window: Tokens from one anchor to the next, at least 1. At 1 every token is an anchor and the loss is 0.
        token_mask: True where a token is real; all are if not given.
        document_ids: A document begins where the id differs from its predecessor's; one document a row if not given.
        detach_anchor: Whether the anchor is a fixed target, as in the paper; if not, it is pulled towards its window.

    Returns:
        Scalar in [0, 2), float32. 0: every window repeats its anchor's gates, or no token is real.

    Raises:
        SettingError: `window` is below 1.

    Source: Sticky Routing, eq. 12.
    """
    require_at_least("window", window, 1, "4 is the paper's")
    return mean_of(anchor_sums(gate_probs, window, token_mask, document_ids, detach_anchor))


def anchor_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    window: int,
    token_mask: Bool[Tensor, "batch seq"] | None,
    document_ids: Int[Tensor, "batch seq"] | None,
    detach_anchor: bool = True,
) -> Sums:
    """Sum the ramped squared distances of the real tokens, for each layer."""
    gates = gate_probs.float()
    places = torch.arange(gates.shape[-2], device=gates.device)[None, :]
    starts = window_starts(places, window, token_mask, document_ids, gates.shape[-3:-1])
    anchors = (gates.detach() if detach_anchor else gates).gather(-2, starts[..., None].expand(gates.shape))
    drift = keep_only(gates - anchors, token_mask)
    return add_up(drift.square().sum(dim=-1) * ((places - starts) / window), token_mask)


TERM = Term(
    name="anchor",
    sums=lambda stack: anchor_sums(stack.gate_probs, stack.window, stack.token_mask, stack.routing.document_ids),
    over="tokens",
)
