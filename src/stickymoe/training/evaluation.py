"""`Evaluation`: what one pass over a split found, and its JSON form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stickymoe.cache import CacheReport
from stickymoe.metrics import summarise
from stickymoe.traces import RoutingTrace

SCHEMA = 1
SEMANTICS = ("policy", "capacity", "scope", "accesses", "replay", "reset")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model on a whole split.

    Attributes:
        split: The split's name.
        cross_entropy: Mean over the predicted tokens, nats; no auxiliary term.
        predicted_tokens: How many; all of the split's but the first.
        gate_entropy_bits: Mean entropy of the gates of each layer, bits.
        gate_margin: Mean distance of the largest gate from the second, of each layer.
        trace: What was routed, one sequence a chunk.
        cache: LRU replays of the trace; the first has the paper's semantics.
        parameters: `total` and `active`.
    """

    split: str
    cross_entropy: float
    predicted_tokens: int
    gate_entropy_bits: list[float]
    gate_margin: list[float]
    trace: RoutingTrace
    cache: tuple[CacheReport, ...]
    parameters: dict[str, int]

    @property
    def perplexity(self) -> float:
        """Exponential of the mean cross-entropy. Source: Sticky Routing, eq. 17."""
        return math.exp(self.cross_entropy)

    def metrics(self) -> dict[str, Any]:
        """Return everything but the trace, as `metrics.json` holds it.

        Raises:
            TraceError: No two tokens of the split are neighbours, as with chunks of one token.
        """
        found = summarise(self.trace)
        return {
            "schema": SCHEMA,
            "split": self.split,
            "perplexity": self.perplexity,
            "cross_entropy": self.cross_entropy,
            "predicted_tokens": self.predicted_tokens,
            "routing": {
                "switch_rate": found["switch_rate"],
                "set_switch_rate": found["set_switch_rate"],
                "expert_overlap": {**found["expert_overlap"], "chance": found["chance_overlap"]},
                "utilisation_entropy_bits": found["utilisation_entropy"],
                "load_cv": found["load_variation"],
                "load_busiest_over_mean": found["load_busiest"],
                "gate_entropy_bits": _over_layers(self.gate_entropy_bits),
                "gate_margin": _over_layers(self.gate_margin),
            },
            "cache": [_counts(report) for report in self.cache],
            "parameters": dict(self.parameters),
            "num_experts": self.trace.num_experts,
            "top_k": self.trace.top_k,
            "num_layers": self.trace.num_layers,
        }


def _over_layers(values: list[float]) -> dict[str, Any]:
    return {"mean": sum(values) / len(values), "per_layer": list(values)}


def _counts(report: CacheReport) -> dict[str, Any]:
    semantics = {name: report.semantics[name] for name in SEMANTICS}
    return {**semantics, "hits": report.hits, "misses": report.misses, "hit_rate": report.hit_rate}
