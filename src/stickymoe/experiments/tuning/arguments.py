"""The Trainer's settings for tuning routers, and an objective that knows the frozen ones."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Int
from torch import Tensor

from stickymoe.losses import Objective, Sums, sum_across_ranks
from stickymoe.losses.symmetric_kl import REMOE_LAGS
from stickymoe.losses.working_set import WINDOW
from stickymoe.routing import Routing
from stickymoe.training import StickyArguments


class TrustingObjective(Objective):
    """An objective that asks for the frozen routers' gates where a term needs them.

    Attributes:
        reference: Returns these gates for what was routed; None where nothing needs them.
    """

    reference: Callable[[Routing], tuple[Tensor, ...]] | None = None

    def measure(self, routing: Routing, input_ids: Int[Tensor, "batch seq"] | None = None) -> dict[str, Sums]:
        """Return the sums behind each term, the trust term's included."""
        if self.reference is not None:
            routing = dataclasses.replace(routing, reference_probs=self.reference(routing))
        return super().measure(routing, input_ids)


@dataclass
class TuningArguments(StickyArguments):
    """`StickyArguments` with the settings of ReMoE's terms; nothing decays, and no type is changed on the way.

    Args:
        lags: Distances of the lag term.
        working_set_window: Tokens of each window of the working-set term.
    """

    lags: list[int] = field(default_factory=lambda: list(REMOE_LAGS))
    working_set_window: int = WINDOW

    weight_decay: float = 0.0
    learning_rate: float = 5e-5

    def build_objective(self, *, across_ranks: bool = False) -> TrustingObjective:
        """Return the objective of these settings; see `StickyArguments.build_objective`."""
        settings: dict[str, Any] = {
            "window": self.window,
            "lags": self.lags,
            "working_set_window": self.working_set_window,
            "boundary_weight": self.boundary_weight,
            "boundary_token_ids": self.boundary_token_ids,
            "layers_per_pool": self.layers_per_pool,
            "allow_unshared": self.allow_unshared,
            "report": self.report_terms,
        }
        return TrustingObjective(self.objective, **settings, reduce=sum_across_ranks if across_ranks else None)
