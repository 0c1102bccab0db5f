"""The paper's router: token choice by softmax and top-k."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.router import Router, RouterDecision


class SoftmaxRouter(Router):
    """Token choice: softmax over all experts, the k most probable serve, their weights renormalised.

    Computed in float32 or better whatever the autocast: in bfloat16 near-ties flip, and training would route
    otherwise than decoding.

    Source: Sticky Routing, eq. 3 to 5; renormalisation from section 5.2.
    """

    def __init__(self, config: StickyMoEConfig) -> None:
        """Create the gate matrix, (experts, hidden)."""
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.norm_topk_prob = config.norm_topk_prob
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))

    def forward(self, hidden_states: Float[Tensor, "batch seq hidden"], context: Any = None) -> RouterDecision:
        """Route every token of the batch."""
        with torch.autocast(hidden_states.device.type, enabled=False):
            return self.choose(self.scores(hidden_states))

    def scores(self, hidden_states: Float[Tensor, "batch seq hidden"]) -> Float[Tensor, "batch seq experts"]:
        """Return the gate's logits, float32 or better; call it outside autocast."""
        dtype = torch.promote_types(hidden_states.dtype, torch.float32)
        return nn.functional.linear(hidden_states.to(dtype), self.weight.to(dtype))

    def choose(
        self,
        router_logits: Float[Tensor, "batch seq experts"],
        expert_ids: Int[Tensor, "batch seq top_k"] | None = None,
    ) -> RouterDecision:
        """Take the k most probable experts, or those given in order of falling probability."""
        gate_probs = router_logits.softmax(dim=-1)
        if expert_ids is None:
            expert_weights, expert_ids = gate_probs.topk(self.top_k, dim=-1)
        else:
            expert_weights = gate_probs.gather(-1, expert_ids)
        if self.norm_topk_prob:
            expert_weights = expert_weights / expert_weights.sum(dim=-1, keepdim=True)
        return RouterDecision(router_logits, gate_probs, expert_ids, expert_weights)
