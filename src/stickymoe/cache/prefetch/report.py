"""What fetching ahead did: `PrefetchReport`, with its semantics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from stickymoe.cache.counted import CountedBeside
from stickymoe.cache.wording import capacity, start


@dataclass(frozen=True, eq=False)
class PrefetchReport(CountedBeside):
    """Lookups and fetches of one cache with prefetch on one trace, beside the same cache without.

    Args:
        hits_per_layer: Lookups whose expert was there.
        late_per_layer: Lookups whose expert was on its way: shorter waits, no loads of their own.
        misses_per_layer: Lookups that had to load.
        fetched_per_layer: Experts fetched ahead.
        useful_per_layer: Those of them that were asked for before they left.
        plain_misses_per_layer: Misses of the same cache without prefetch.
        expert_bytes: Bytes of one expert of each layer; None where not known.
        semantics: How it was counted.
    """

    hits_per_layer: Int[np.ndarray, " layers"]
    late_per_layer: Int[np.ndarray, " layers"]
    misses_per_layer: Int[np.ndarray, " layers"]
    fetched_per_layer: Int[np.ndarray, " layers"]
    useful_per_layer: Int[np.ndarray, " layers"]
    plain_misses_per_layer: Int[np.ndarray, " layers"]
    expert_bytes: Int[np.ndarray, " layers"] | None
    semantics: dict[str, Any]

    @property
    def late(self) -> int:
        """Lookups whose expert was on its way."""
        return int(self.late_per_layer.sum())

    @property
    def lookups(self) -> int:
        """Hits, late ones and misses."""
        return self.hits + self.late + self.misses

    @property
    def fetched(self) -> int:
        """Experts fetched ahead."""
        return int(self.fetched_per_layer.sum())

    @property
    def useful(self) -> int:
        """Experts fetched ahead and asked for before they left."""
        return int(self.useful_per_layer.sum())

    @property
    def wasted(self) -> int:
        """Experts fetched ahead for nothing."""
        return self.fetched - self.useful

    @property
    def hit_rate(self) -> float:
        """Hits over lookups, in [0, 1]; late ones are no hits."""
        return self.hits / self.lookups

    @property
    def accuracy(self) -> float | None:
        """Useful over fetched, in [0, 1]; None where nothing was fetched."""
        return self.useful / self.fetched if self.fetched else None

    @property
    def over_fetch_bytes(self) -> int | None:
        """Bytes fetched for nothing; None where the size of an expert is not known."""
        return self._bytes(self.fetched_per_layer - self.useful_per_layer)

    @property
    def loaded_bytes(self) -> int | None:
        """Bytes of all loads, ahead or on demand."""
        return self._bytes(self.fetched_per_layer + self.misses_per_layer)

    @property
    def plain_loaded_bytes(self) -> int | None:
        """Bytes of all loads of the same cache without prefetch."""
        return self._bytes(self.plain_misses_per_layer)

    def describe(self) -> str:
        """Say in one line how the numbers were counted."""
        told = self.semantics
        parts = [
            f"{told['predictor']} prefetch, {told['lookahead']} ahead, at most {told['budget']} an event",
            told["policy"].upper(),
            capacity(told, self.hits_per_layer.size),
            f"top-{told['top_k']} accesses, atomic",
            start(told["reset"]),
        ]
        carried = f"each fetch takes {told['transfer_events']:g} events on one link"
        return ", ".join(parts + ([carried] if told["transfer_events"] else ["fetches arrive in time"]))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        names = ("hit_rate", "lookups", "hits", "late", "misses", "plain_misses", "fetched", "useful", "wasted")
        more = ("accuracy", "over_fetch_bytes", "loaded_bytes", "plain_loaded_bytes")
        return {name: getattr(self, name) for name in names + more} | {
            "misses_per_layer": self.misses_per_layer.tolist(),
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }

    def _bytes(self, experts: Int[np.ndarray, " layers"]) -> int | None:
        if self.expert_bytes is None:
            return None
        sizes: list[int] = self.expert_bytes.tolist()  # whole numbers of Python: they do not overflow
        return sum(int(count) * size for count, size in zip(experts, sizes, strict=True))
