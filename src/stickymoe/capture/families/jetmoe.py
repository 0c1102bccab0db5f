"""jetmoe: two routers a layer, for attention and for the feed-forward part, and a choice told as a sorted layout."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from stickymoe.capture.families.family import Family


class JetMoeFamily(Family):
    """Reads the choice back from the layout in which the experts receive their rows."""

    note: str = "two MoE layers a block: attention and mlp; activation checkpointing unsupported upstream"
    weighs_in_experts: ClassVar[bool] = False

    def layer_name(self, path: str) -> str:
        """Return number and part: "3.self_attention", "3.mlp"."""
        return f"{super().layer_name(path)}.{'mlp' if '.mlp.' in path else 'self_attention'}"

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Undo the sorting: slot `order[j]` of the (tokens x top_k) slots is row j of the layout."""
        order, _, weights, sizes, logits = output
        experts = torch.repeat_interleave(
            torch.arange(len(sizes), device=order.device), torch.tensor(sizes, device=order.device)
        )
        back = order.argsort()
        shape = (logits.shape[0], -1)
        return experts[back].view(shape), weights[back].view(shape)
