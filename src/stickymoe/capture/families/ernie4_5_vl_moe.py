"""ernie4_5_vl_moe: tokens of text and of images have routers and experts of their own in every layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from stickymoe.capture.families.family import Decision, Family
from stickymoe.capture.inputs import PassInputs


class ErnieVLFamily(Family):
    """Puts the decisions of both routers together: ids 0..N-1 are text experts, N..2N-1 those of images.

    In a pass of text alone only the text experts count, so that gates are as wide as in a text model.
    """

    note: str = "text experts come first; with images in the pass, ids N..2N-1 are the vision experts"
    weighs_in_experts: ClassVar[bool] = False
    undeclared: ClassVar[frozenset[str]] = frozenset({"Ernie4_5_VLMoeMoeTopKRouter"})
    declares_others: ClassVar[bool] = True

    def join(self, routers: Sequence[nn.Module], decisions: Sequence[Decision], inputs: PassInputs) -> Decision:
        """Lay out both decisions over all tokens."""
        if len(decisions) == 1:
            return decisions[0]
        is_image: Tensor = inputs.given["moe_mm_token_type_ids"].bool().flatten()
        text, image = decisions
        rows, experts = len(is_image), text.router_logits.shape[-1]
        places = (~is_image).nonzero()[:, 0], is_image.nonzero()[:, 0]

        def wide(parts: tuple[Tensor, Tensor], empty: float) -> Tensor:
            full = parts[0].new_full((rows, 2 * experts), empty)
            for half, (part, place) in enumerate(zip(parts, places, strict=True)):
                columns = torch.arange(half * experts, (half + 1) * experts, device=part.device)
                full = full.index_put((place[:, None], columns[None]), part)
            return full

        def narrow(parts: tuple[Tensor, Tensor]) -> Tensor:
            full = parts[0].new_zeros(rows, parts[0].shape[-1])
            for part, place in zip(parts, places, strict=True):
                full = full.index_put((place,), part)
            return full

        return Decision(
            wide((text.router_logits, image.router_logits), float("-inf")),
            wide((text.gate_probs, image.gate_probs), 0.0),
            narrow((text.expert_ids, image.expert_ids + experts)),
            narrow((text.expert_weights, image.expert_weights)),
        )
