"""What dividing a budget by layer gains on sequences it was not fitted to: `AllocationReport`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.cache.wording import start


@dataclass(frozen=True, eq=False)
class AllocationReport:
    """A split fitted on some sequences and judged on others, beside the simple ways to spend the same budget.

    Args:
        slots: Slots of each layer, fitted.
        equal_slots: The same for every layer.
        fitted_misses: Misses on the sequences it was fitted to: `split`, `equal`.
        held_out_misses: Misses on the others: `split`, `equal`, `pool` (one cache for all layers), and `hindsight`, the
            split fitted to these sequences themselves, which no fit can beat.
        held_out_lookups: Lookups on the others.
        semantics: How it was counted.
    """

    slots: Int[np.ndarray, " layers"]
    equal_slots: Int[np.ndarray, " layers"]
    fitted_misses: dict[str, int]
    held_out_misses: dict[str, int]
    held_out_lookups: int
    semantics: dict[str, Any]

    @property
    def gain(self) -> float:
        """Hit rate of the split less that of equal shares, held out; negative where the fit does not carry over."""
        return (self.held_out_misses["equal"] - self.held_out_misses["split"]) / self.held_out_lookups

    def hit_rate(self, way: str) -> float:
        """Held-out hit rate of `split`, `equal`, `pool` or `hindsight`."""
        return 1 - self.held_out_misses[way] / self.held_out_lookups

    def describe(self) -> str:
        """Say in one line how the numbers were counted."""
        told = self.semantics
        budget = f"{told['slots']} slots" if told["budget_bytes"] is None else f"{told['budget_bytes']} bytes"
        return (
            f"{told['policy'].upper()}, {budget} over {len(self.slots)} layers, at least {told['at_least']} each, "
            f"{told['replay']}, {start(told['reset'])}, fitted on {told['fitted_on']}, judged on {told['judged_on']}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {
            "slots": self.slots.tolist(),
            "equal_slots": self.equal_slots.tolist(),
            "fitted_misses": dict(self.fitted_misses),
            "held_out_misses": dict(self.held_out_misses),
            "held_out_lookups": self.held_out_lookups,
            "held_out_hit_rates": {way: self.hit_rate(way) for way in self.held_out_misses},
            "gain": self.gain,
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }
