"""The reference model: its router tells everything by itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from stickymoe.capture.families.family import Decision, Family
from stickymoe.model import RouterDecision


class OwnFamily(Family):
    """Takes the router's decision as it stands."""

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Take the decision's experts."""
        decision: RouterDecision = output
        return decision.expert_ids, decision.expert_weights

    def decide(self, router: nn.Module, index: int, output: Any, given: tuple[Any, ...]) -> Decision:
        """Take the decision, rows and all."""
        decision: RouterDecision = output
        return Decision(decision.router_logits, decision.gate_probs, decision.expert_ids, decision.expert_weights)
