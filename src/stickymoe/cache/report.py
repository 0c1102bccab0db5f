"""What a replay found: `CacheReport`, which never shows a hit rate without its semantics."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stickymoe.cache.counted import Counted
from stickymoe.cache.wording import capacity, start

PHASE_NAMES = ("prefill", "decode")


@dataclass(frozen=True, eq=False)
class CacheReport(Counted):
    """Hits and misses of one cache setting on one trace.

    Args:
        hits_per_layer: Lookups that found their expert resident.
        misses_per_layer: Lookups that did not; first uses among them.
        compulsory_per_layer: Misses that no cache of any size avoids: those of an expert not asked for since the cold
            start, but for what was loaded ahead.
        semantics: How it was counted: every setting of `simulate`.
        loads_per_layer: Experts loaded for misses: an expert that several tokens of one event miss is loaded once.
        per_phase: Hits and misses of `prefill` and `decode`, (2 phases, layers), where the trace knows phases.
        expert_bytes: Bytes of one expert of each layer, where known.
        profile: For a static cache: where its choice comes from, and what that cost.
        cliff: A warning where a shared pool is smaller than one token's demand.
    """

    hits_per_layer: Int[np.ndarray, " layers"]
    misses_per_layer: Int[np.ndarray, " layers"]
    compulsory_per_layer: Int[np.ndarray, " layers"]
    semantics: dict[str, Any]
    loads_per_layer: Int[np.ndarray, " layers"] | None = None
    per_phase: dict[str, Int[np.ndarray, "2 layers"]] | None = None
    expert_bytes: Int[np.ndarray, " layers"] | None = None
    profile: dict[str, Any] = field(default_factory=dict)
    cliff: str | None = None

    @property
    def compulsory(self) -> int:
        """Misses that are first uses, over all layers."""
        return int(self.compulsory_per_layer.sum())

    @property
    def loads(self) -> int | None:
        """Experts loaded for misses, over all layers; what a profile loads ahead is not among them."""
        return None if self.loads_per_layer is None else int(self.loads_per_layer.sum())

    @property
    def bytes_moved(self) -> int | None:
        """Bytes of the experts loaded for misses, where experts' bytes are known."""
        if self.loads_per_layer is None or self.expert_bytes is None:
            return None
        pairs = zip(self.loads_per_layer.tolist(), self.expert_bytes.tolist(), strict=True)
        return sum(int(loads) * int(size) for loads, size in pairs)

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
        """Hits over lookups of each layer; NaN where a layer was not asked for anybody."""
        lookups = self.hits_per_layer + self.misses_per_layer
        rates: np.ndarray = np.where(lookups > 0, self.hits_per_layer / np.maximum(lookups, 1), np.nan)
        return rates

    def phase(self, name: str) -> tuple[int, int]:
        """Return hits and misses of `prefill` or `decode`; none where the trace does not know phases."""
        hits, misses = (0, 0) if self.per_phase is None else self.per_phase[name].sum(axis=1).tolist()
        return int(hits), int(misses)

    def describe(self) -> str:
        """Say in one line how the numbers were counted."""
        told = self.semantics
        depth = 1 if told["accesses"] == "top1" else told["top_k"]
        parts = [
            told["policy"].upper(),
            capacity(told, self.hits_per_layer.size),
            f"top-{depth} accesses",
            told["replay"],
            start(told["reset"]),
        ]
        if told["prefill"] == "pass":
            parts.append("an event a forward pass")
        if told["batch"] > 1:
            parts.append(f"{told['batch']} sequences a step")
        if told["count"] == "unique":
            parts.append("each expert once an event")
        if told["admission"] != "always":
            parts.append(ADMITTED[told["admission"]])
        parts += [f"{name} {value:g}" for name, value in told["options"].items()]
        if self.profile:
            parts.append(f"profile {self.profile['from']}")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        told: dict[str, Any] = {
            "hit_rate": self.hit_rate,
            "lookups": self.lookups,
            "hits": self.hits,
            "misses": self.misses,
            "compulsory": self.compulsory,
            "loads": self.loads,
            "bytes_moved": self.bytes_moved,
            "hit_rate_per_layer": [None if rate != rate else rate for rate in self.hit_rate_per_layer.tolist()],
            "semantics": dict(self.semantics),
            "description": self.describe(),
        }
        if self.per_phase is not None:
            told["phases"] = {
                name: dict(zip(("hits", "misses"), self.phase(name), strict=True)) for name in PHASE_NAMES
            }
        if self.profile:
            told["profile"] = dict(self.profile)
        if self.cliff is not None:
            told["cliff"] = self.cliff
        return told


ADMITTED = {
    "whole": "the running event is never split",
    "bypass": "a miss may leave at once",
    "never": "misses are not admitted",
}
