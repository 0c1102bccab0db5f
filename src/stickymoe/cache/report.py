"""What a replay found: `CacheReport`, which never shows a hit rate without its semantics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class CacheReport:
    """Hits and misses of one cache setting on one trace.

    Args:
        hits_per_layer: Lookups that found their expert resident.
        misses_per_layer: Lookups that did not; first uses among them.
        compulsory_per_layer: Misses no cache of any size avoids: the first use of an expert after a cold start.
        semantics: How it was counted: policy, capacity, scope, accesses, top_k, replay, prefill, count, reset.
    """

    hits_per_layer: Int[np.ndarray, " layers"]
    misses_per_layer: Int[np.ndarray, " layers"]
    compulsory_per_layer: Int[np.ndarray, " layers"]
    semantics: dict[str, Any]

    @property
    def hits(self) -> int:
        """Hits over all layers."""
        return int(self.hits_per_layer.sum())

    @property
    def misses(self) -> int:
        """Misses over all layers."""
        return int(self.misses_per_layer.sum())

    @property
    def compulsory(self) -> int:
        """Misses that are first uses, over all layers."""
        return int(self.compulsory_per_layer.sum())

    @property
    def lookups(self) -> int:
        """Hits and misses."""
        return self.hits + self.misses

    @property
    def hit_rate(self) -> float:
        """Hits over lookups, in [0, 1]; below 1 even for a cache of everything, since first uses miss."""
        return self.hits / self.lookups

    @property
    def hit_rate_per_layer(self) -> Float[np.ndarray, " layers"]:
        """Hits over lookups of each layer."""
        rates: np.ndarray = self.hits_per_layer / (self.hits_per_layer + self.misses_per_layer)
        return rates

    def describe(self) -> str:
        """Say in one line how the numbers were counted."""
        told = self.semantics
        where = "a layer" if told["scope"] == "layer" else "for the whole model"
        depth = 1 if told["accesses"] == "top1" else told["top_k"]
        start = "cold at each sequence" if told["reset"] == "sequence" else "one cache through the whole trace"
        parts = [
            told["policy"].upper(),
            f"capacity {told['capacity']} {where}",
            f"top-{depth} accesses",
            told["replay"],
            start,
        ]
        return ", ".join(parts + (["each expert once an event"] if told["count"] == "unique" else []))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {
            "hit_rate": self.hit_rate,
            "lookups": self.lookups,
            "hits": self.hits,
            "misses": self.misses,
            "compulsory": self.compulsory,
            "hit_rate_per_layer": self.hit_rate_per_layer.tolist(),
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }
