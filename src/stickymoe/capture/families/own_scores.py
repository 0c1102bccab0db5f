"""Families whose config names the function from logits to scores: the router holds it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stickymoe.capture.families.family import Family
from stickymoe.capture.gates import precise, shares


class OwnScoresFamily(Family):
    """Asks the router's own function for the scores and takes their shares; `gate` names what it is by default."""

    def gates(self, router: nn.Module, logits: Tensor) -> Tensor:
        """Return the shares of the router's scores."""
        score: Any = router.score_fn
        return shares(score(precise(logits)))


class Cohere2MoeFamily(Family):
    """Its router names the function instead of holding it."""

    def gates(self, router: nn.Module, logits: Tensor) -> Tensor:
        """Return softmax, or the shares of sigmoids."""
        if router.expert_selection_fn == "sigmoid":
            return shares(precise(logits).sigmoid())
        return torch.softmax(precise(logits), dim=-1)
