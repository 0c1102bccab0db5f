"""What a say of the cache in routing saved and cost: `RerouteReport`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stickymoe.cache.counted import CountedBeside
from stickymoe.cache.wording import capacity, start


@dataclass(frozen=True, eq=False)
class RerouteReport(CountedBeside):
    """Lookups under one rule on one trace, beside the same cache with the router's own choice.

    The trace is not the one the rerouted model would have made: a changed choice changes the hidden state and so all
    later choices, which a replay cannot know. What it does to the text is not in it either: gate mass is a stand-in.

    Args:
        hits_per_layer: Lookups whose expert was resident.
        misses_per_layer: Lookups that had to load.
        changed_per_layer: Choices of the router served by another expert.
        dropped_per_layer: Choices of the router served by none.
        own_mass_per_layer: Gate mass of the router's own choice, summed.
        served_mass_per_layer: Gate mass of what served, summed.
        plain_hits_per_layer: Hits with the router's own choice.
        plain_misses_per_layer: Misses with the router's own choice.
        semantics: How it was counted.
    """

    hits_per_layer: Int[np.ndarray, " layers"]
    misses_per_layer: Int[np.ndarray, " layers"]
    changed_per_layer: Int[np.ndarray, " layers"]
    dropped_per_layer: Int[np.ndarray, " layers"]
    own_mass_per_layer: Float[np.ndarray, " layers"]
    served_mass_per_layer: Float[np.ndarray, " layers"]
    plain_hits_per_layer: Int[np.ndarray, " layers"]
    plain_misses_per_layer: Int[np.ndarray, " layers"]
    semantics: dict[str, Any]

    @property
    def choices(self) -> int:
        """Choices of the router: lookups without the rule."""
        return int((self.plain_hits_per_layer + self.plain_misses_per_layer).sum())

    @property
    def hit_rate(self) -> float:
        """Hits over lookups, in [0, 1]. Dropping loses lookups as well: compare misses."""
        return self.hits / (self.hits + self.misses)

    @property
    def plain_hit_rate(self) -> float:
        """Hits over lookups with the router's own choice."""
        return int(self.plain_hits_per_layer.sum()) / self.choices

    @property
    def changed_share(self) -> float:
        """Share of the router's choices served by another expert, in [0, 1]."""
        return int(self.changed_per_layer.sum()) / self.choices

    @property
    def dropped_share(self) -> float:
        """Share of the router's choices served by none, in [0, 1]."""
        return int(self.dropped_per_layer.sum()) / self.choices

    @property
    def mass_lost(self) -> float:
        """Share of the router's own gate mass that no longer serves, in [0, 1]."""
        own = float(self.own_mass_per_layer.sum())
        return max(0.0, 1 - float(self.served_mass_per_layer.sum()) / own)

    @property
    def misses_saved(self) -> float:
        """Share of the misses with the router's own choice that are gone; negative where the rule makes more."""
        return 1 - self.misses / self.plain_misses if self.plain_misses else 0.0

    def describe(self) -> str:
        """Say in one line how the numbers were counted."""
        told = self.semantics
        parts = [
            f"{told['rule']} {told['strength']:g} ({told['meaning']})",
            f"top {told['keep']} always kept, {told['served']} of {told['slots']} recorded slots served",
            told["policy"].upper(),
            capacity(told, self.hits_per_layer.size),
            "atomic",
            start(told["reset"]),
        ]
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        names = ("hit_rate", "plain_hit_rate", "hits", "misses", "plain_misses", "misses_saved")
        more = ("choices", "changed_share", "dropped_share", "mass_lost")
        return {name: getattr(self, name) for name in names + more} | {
            "misses_per_layer": self.misses_per_layer.tolist(),
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }
