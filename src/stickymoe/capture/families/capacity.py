"""switch_transformers and nllb_moe: a token that finds its expert full is dropped; experts receive masks, not ids."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from stickymoe.capture.families.family import Family
from stickymoe.capture.gates import precise


class SwitchFamily(Family):
    """One expert a token, by a mask that is empty where the token was dropped."""

    note: str = "encoder and decoder are captured apart; a token dropped by capacity has weight 0"
    weighs_in_experts: ClassVar[bool] = False

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Return the router's choice, with weight 0 where it was full."""
        mask, weights, logits = output
        return logits.argmax(dim=-1, keepdim=True), weights * mask.any(dim=-1, keepdim=True)


class NllbMoeFamily(Family):
    """Two experts a token; their weights come as a row over all experts, 0 where not chosen or dropped."""

    note: str = (
        "encoder and decoder are captured apart; a token dropped by capacity has weight 0; what the router decided: "
        "transformers 5.24 runs expert_0 and expert_1 whatever that is"
    )
    weighs_in_experts: ClassVar[bool] = False
    may_skip_layers: ClassVar[bool] = True  # layerdrop

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Return the two experts with weight; where fewer serve, the likeliest others with weight 0."""
        _, weights, logits = output
        likely = precise(logits).softmax(dim=-1)
        ids = (weights + likely.where(weights > 0, likely - 1)).topk(2, dim=-1).indices
        return ids, weights.gather(-1, ids)
