"""What to log beside the losses, so that flat gates or a collapse are not mistaken for stickiness."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from stickymoe.losses.load_balancing import count_slots
from stickymoe.losses.sums import add_up, keep_only
from stickymoe.losses.term import stack_layers
from stickymoe.routing import Routing


@torch.no_grad()
def diagnose(routing: Routing) -> dict[str, Tensor]:
    """Measure how sticky, how decided and how balanced every layer routes, without waiting for the device.

    Returns:
        By name, (layers,) unless said otherwise; NaN where nothing counts:
        `switch_rate`: share of valid pairs whose top-1 expert differs.
        `gate_entropy_bits`: mean entropy of the gates, from 0 (decided) to log2 N (flat).
        `gate_margin`: mean distance of the largest gate from the second, from 0 (undecided) to 1.
        `load`: (layers, experts), share of the real tokens that each expert served; sums to k.
        `busiest_share`: the largest load of the layer, from k/N (even) to 1 (one expert serves every token).
    """
    gates = stack_layers(routing.gate_probs)
    expert_ids = stack_layers(routing.expert_ids, "routing.expert_ids")
    slots = count_slots(expert_ids, gates.shape[-1], routing.token_mask)
    load = slots * expert_ids.shape[-1] / slots.sum(dim=-1, keepdim=True)
    return {
        "switch_rate": switch_rate(expert_ids, routing.valid_pairs()),
        "gate_entropy_bits": gate_entropy_bits(gates, routing.token_mask),
        "gate_margin": gate_margin(gates, routing.token_mask),
        "load": load,
        "busiest_share": load.amax(dim=-1),
    }


@torch.no_grad()
def switch_rate(
    expert_ids: Int[Tensor, "*layers batch seq top_k"], valid_pairs: Bool[Tensor, "batch seq-1"] | None = None
) -> Float[Tensor, "*layers"]:
    """Share of valid pairs whose top-1 expert (slot 0) differs; NaN where no pair counts.

    Source: Sticky Routing, eq. 18.
    """
    top = expert_ids[..., 0]
    switched = (top[..., 1:] != top[..., :-1])[..., None].float()
    return _mean_or_nan(keep_only(switched, valid_pairs).squeeze(-1), valid_pairs)


@torch.no_grad()
def gate_entropy_bits(
    gate_probs: Float[Tensor, "*layers batch seq experts"], token_mask: Bool[Tensor, "batch seq"] | None = None
) -> Float[Tensor, "*layers"]:
    """Mean entropy of the gates in bits, from 0 (one-hot) to log2 N (flat); NaN where no token is real."""
    gates = keep_only(gate_probs.float(), token_mask)
    return _mean_or_nan(torch.special.entr(gates).sum(dim=-1) / math.log(2), token_mask)


@torch.no_grad()
def gate_margin(
    gate_probs: Float[Tensor, "*layers batch seq experts"], token_mask: Bool[Tensor, "batch seq"] | None = None
) -> Float[Tensor, "*layers"]:
    """Mean distance of the largest gate from the second, from 0 (undecided) to 1 (one-hot); NaN where no token is real.

    A router with a single expert is always decided: its margin is its only gate, 1.
    """
    gates = keep_only(gate_probs.float(), token_mask)
    top = gates.topk(min(2, gates.shape[-1]), dim=-1).values
    return _mean_or_nan(top[..., 0] - top[..., 1:].sum(dim=-1), token_mask)


def _mean_or_nan(values: Tensor, counted: Tensor | None) -> Tensor:
    sums = add_up(values, counted)
    return sums.total / sums.weight
