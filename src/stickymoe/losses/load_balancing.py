"""The load-balancing loss: experts should share the tokens evenly."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.losses.sums import Sums, keep_only, require_shape
from stickymoe.losses.term import LayerStack, Term, stack_layers


def load_balancing_loss(
    gate_probs: Float[Tensor, "batch seq experts"],
    expert_ids: Int[Tensor, "batch seq top_k"],
    token_mask: Bool[Tensor, "batch seq"] | None = None,
) -> Float[Tensor, ""]:
    """Product of the experts' share of the slots and their mean gate, summed and scaled by their number.

        loss = N * sum_i f_i p_i,   f_i = share of all real tokens' k slots that went to i,   p_i = mean gate of i

    Only p carries gradient. The product makes it a property of a whole batch: the mean over micro-batches or ranks is
    not the value of them together. `Objective(reduce=...)` adds f and p up over ranks first.

    Args:
        gate_probs: Router softmax before top-k; rows sum to 1.
        expert_ids: The experts that served each token, from 0 to N-1 wherever the token is real.
        token_mask: True where a token is real; all are if not given.

    Returns:
        Scalar in [0, N], float32. 1: uniform load or uniform gates. N: one expert gets everything. 0: no token is real.

    Source: Sticky Routing, eq. 6; Switch Transformers, eq. 4 to 6, with f over all k slots.
    """
    return balance_value(balance_sums(gate_probs, expert_ids, token_mask))


def balance_sums(
    gate_probs: Float[Tensor, "*layers batch seq experts"],
    expert_ids: Int[Tensor, "*layers batch seq top_k"],
    token_mask: Bool[Tensor, "batch seq"] | None,
) -> Sums:
    """Add up the gates (`total`) and the slots (`slots`) of each expert over the real tokens, for each layer."""
    gates = keep_only(gate_probs.float(), token_mask)
    total = gates.sum(dim=(-3, -2))
    tokens = gates.new_full((), gates.shape[-3] * gates.shape[-2]) if token_mask is None else token_mask.float().sum()
    return Sums(total, tokens, count_slots(expert_ids, gates.shape[-1], token_mask))


def balance_value(sums: Sums) -> Tensor:
    """Turn the sums into N * sum_i f_i p_i, for each layer; 0 with gradient 0 where no token was real."""
    assert sums.slots is not None
    slots = sums.slots.sum(dim=-1, keepdim=True)
    shares = sums.slots / torch.where(slots > 0, slots, 1.0)
    mean_gates = sums.total / torch.where(sums.weight > 0, sums.weight, 1.0)
    return sums.total.shape[-1] * (shares * mean_gates).sum(dim=-1)


@torch.no_grad()
def count_slots(
    expert_ids: Int[Tensor, "*layers batch seq top_k"], num_experts: int, token_mask: Bool[Tensor, "batch seq"] | None
) -> Float[Tensor, "*layers experts"]:
    """Count the top-k slots that each expert got from real tokens; ids at padding may be anything."""
    ids = expert_ids.long()
    ones = torch.ones((), device=ids.device)
    if token_mask is not None:
        require_shape("token_mask", token_mask, ids.shape[-3:-1])
        ids = torch.where(token_mask[..., None], ids, 0)
        ones = token_mask.float()[..., None]
    ones = ones.expand(ids.shape).flatten(-3)
    return torch.zeros(*ids.shape[:-3], num_experts, device=ids.device).scatter_add(-1, ids.flatten(-3), ones)


def _sums_of_stack(stack: LayerStack) -> Sums:
    return balance_sums(
        stack.gate_probs, stack_layers(stack.routing.expert_ids, "routing.expert_ids"), stack.token_mask
    )


TERM = Term(
    name="load_balancing", sums=_sums_of_stack, over="tokens", value=balance_value, additive=False, locality=False
)
