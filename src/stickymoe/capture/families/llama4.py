"""llama4: weights scale the experts' input, and every expert runs on every token."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from stickymoe.capture.families.family import Family


class Llama4Family(Family):
    """Reads the choice from the router's dense scores, which are 0 for every expert not chosen."""

    gate: str = "sigmoid"
    note: str = "transformers runs every expert on every token, those not chosen on zeros"
    weighs_in_experts: ClassVar[bool] = False

    def chosen(self, router: nn.Module, output: Any, given: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """Take the scores that are not 0."""
        scores: Tensor = output[0]
        top_k: Any = router.top_k
        weights, ids = scores.topk(int(top_k), dim=-1)
        return ids, weights
