"""The working-set loss: a window's tokens together should need few experts."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.core.settings import require_at_least
from stickymoe.losses.runs import window_starts
from stickymoe.losses.sums import Sums, keep_only, mean_of
from stickymoe.losses.term import Term

WINDOW = 16
# Below it a mean gate counts as it, so that the entropy's gradient stays finite
_SMALLEST = torch.finfo(torch.float32).tiny


def working_set_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    window: int = WINDOW,
    token_mask: Bool[Tensor, "batch seq"] | None = None,
    document_ids: Int[Tensor, "batch seq"] | None = None,
) -> Float[Tensor, ""]:
    """Mean entropy of the mean gates of a window of tokens, in nats.

        loss = mean over real tokens of  H( mean of g over the window of the token ),   H(p) = -sum_e p_e log p_e

    Windows follow each other without overlap and begin anew with each document, so its last one may be shorter; meaning
    over tokens lets it weigh as much as it has of them. Gates that are flat for every token score worst, gates that
    collapse on one expert score best: read it beside the load.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        window: W, tokens a window, at least 1. At 1 it is the mean entropy of the gates.
        token_mask: True where a token is real; all are if not given.
        document_ids: A document begins where the id differs from its predecessor's; one document a row if not given.

    Returns:
        Scalar in [0, log N], float32. 0: every window routes to one expert, or no token is real. log N: flat.

    Raises:
        SettingError: `window` is below 1.

    Source: ReMoE, working set. W, the term's weight, and whether windows overlap are open in what we know of the paper.
    """
    require_at_least("window", window, 1)
    return mean_of(working_set_sums(gate_probs, window, token_mask, document_ids))


def working_set_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    window: int,
    token_mask: Bool[Tensor, "batch seq"] | None,
    document_ids: Int[Tensor, "batch seq"] | None,
) -> Sums:
    """Sum the entropies of the windows, each times its real tokens, for each layer."""
    gates = keep_only(gate_probs.float(), token_mask)
    tokens = gates.shape[-3:-1]
    places = torch.arange(tokens[1], device=gates.device)[None, :]
    starts = window_starts(places, window, token_mask, document_ids, tokens).expand(tokens)
    real = gates.new_ones(tokens) if token_mask is None else token_mask.float()
    counts = torch.zeros_like(real).scatter_add(-1, starts, real)
    total = torch.zeros_like(gates).scatter_add(-2, starts[..., None].expand(gates.shape), gates)
    mean_gates = total / counts.clamp(min=1.0)[..., None]
    entropy = torch.special.entr(mean_gates.clamp(min=_SMALLEST)).sum(dim=-1)
    return Sums((entropy * counts).sum(dim=(-2, -1)), real.sum())


TERM = Term(
    name="working_set",
    sums=lambda stack: working_set_sums(
        stack.gate_probs, stack.working_set_window, stack.token_mask, stack.routing.document_ids
    ),
    over="tokens",
)
