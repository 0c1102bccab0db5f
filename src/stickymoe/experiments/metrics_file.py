"""The schema of a run's `metrics.json`: what evaluation writes and every table, figure and report reads.

    {"schema": 1, "name": "soft", "label": "Soft λ=0.5", "split": "test",
     "perplexity": 224.0, "cross_entropy": 5.4116, "predicted_tokens": 73412,
     "num_experts": 4, "top_k": 2, "num_layers": 4, "seed": 0,
     "routing": {"switch_rate": {"mean": 0.5, "per_layer": [..]}, "set_switch_rate": ..,
                 "expert_overlap": {.., "chance": 0.5},
                 "utilisation_entropy_bits": .., "load_cv": .., "load_busiest_over_mean": ..,
                 "gate_entropy_bits": .., "gate_margin": ..},
     "cache": [{"policy": "lru", "capacity": 2, "scope": "layer", "accesses": "top1", "replay": "sequential",
                "reset": "sequence", "hits": 1, "misses": 2, "hit_rate": 0.3333}],
     "parameters": {"total": 1840000, "active": 1310000},
     "train": {"steps": 600, "seconds": 150.2, "tokens_per_step": 2048},
     "corpus": {"name": "sotu", ..}, "hardware": {..}, "versions": {..}, "commit": "f61ff4c"}

`name` and `label` are optional (the folder's name stands in). `routing` and `cache` are not read where every token uses
all experts (num_experts = top_k). Further keys are allowed; those of `corpus`, `hardware` and `versions` are shown.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt, model_validator

SCHEMA = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class LayerMeasure(_Part):
    """A measure of routing: one value a layer, and their mean."""

    mean: FiniteFloat
    per_layer: tuple[FiniteFloat, ...]


class Overlap(LayerMeasure):
    """Expert overlap of neighbouring tokens beside its chance level k/N."""

    chance: FiniteFloat


class RoutingMeasures(_Part):
    """What the routers chose on the evaluated split."""

    switch_rate: LayerMeasure
    set_switch_rate: LayerMeasure
    expert_overlap: Overlap
    utilisation_entropy_bits: LayerMeasure
    load_cv: LayerMeasure
    load_busiest_over_mean: LayerMeasure
    gate_entropy_bits: LayerMeasure
    gate_margin: LayerMeasure


class CacheSemantics(_Part):
    """How a hit rate was counted; two hit rates compare only where this is the same."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    policy: str
    capacity: PositiveInt
    scope: Literal["layer", "model"]
    accesses: Literal["top1", "topk"]
    replay: Literal["atomic", "sequential"]
    reset: Literal["sequence", "never"]

    @property
    def is_the_papers(self) -> bool:
        """Whether this is the cache hit rate of the Sticky Routing paper: top-1 lookups in two LRU slots a layer."""
        paper = CacheSemantics(
            policy="lru", capacity=2, scope="layer", accesses="top1", replay="sequential", reset="sequence"
        )
        return self == paper

    @property
    def short(self) -> str:
        """Return a column heading: `top-1, 2 slots`."""
        lookups = "top-1" if self.accesses == "top1" else "all k"
        policy = "" if self.policy == "lru" else f"{self.policy.upper()}, "
        return f"{policy}{lookups}, {self.capacity} slot{'s' if self.capacity > 1 else ''}"

    @property
    def spelled_out(self) -> str:
        """Return the semantics as a sentence for a caption."""
        who = (
            "only the top-1 expert of a token is looked up"
            if self.accesses == "top1"
            else "all k experts are looked up"
        )
        where = "slots for each layer" if self.scope == "layer" else "slots for the whole model"
        how = (
            "a token's experts are looked up together, then the misses are loaded"
            if self.replay == "atomic"
            else "each expert is looked up and loaded in turn"
        )
        when = "cold at the start of each sequence" if self.reset == "sequence" else "one cache through the whole split"
        return f"{self.policy.upper()}, {self.capacity} {where}; {who}; {how}; {when}; first uses are misses"


class CacheCounts(CacheSemantics):
    """Hits and misses of one replayed cache."""

    hits: NonNegativeInt
    misses: NonNegativeInt

    @property
    def semantics(self) -> CacheSemantics:
        """The counting rule alone, without the counts."""
        return CacheSemantics(**{name: getattr(self, name) for name in CacheSemantics.model_fields})

    @property
    def hit_rate(self) -> float:
        """Hits over lookups."""
        return self.hits / (self.hits + self.misses)

    @model_validator(mode="after")
    def _something_was_looked_up(self) -> CacheCounts:
        if self.hits + self.misses == 0:
            raise ValueError("hits + misses must be >= 1, got 0")
        return self


class Parameters(_Part):
    """Parameter counts: all of them, and those one token uses."""

    total: PositiveInt
    active: PositiveInt


class Training(_Part):
    """How long the run trained."""

    steps: PositiveInt
    seconds: FiniteFloat = Field(ge=0)
    tokens_per_step: PositiveInt


class CorpusFacts(_Part):
    """Which text; everything beyond the name is shown as it is."""

    name: str
    fingerprint: str | None = None


class Metrics(_Part):
    """The whole of `metrics.json`, checked."""

    schema_version: Literal[1] = Field(alias="schema")
    name: str | None = None
    label: str | None = None
    split: str
    perplexity: FiniteFloat = Field(gt=0)
    cross_entropy: FiniteFloat
    predicted_tokens: PositiveInt
    num_experts: PositiveInt
    top_k: PositiveInt
    num_layers: PositiveInt
    seed: int
    routing: RoutingMeasures | None = None
    cache: tuple[CacheCounts, ...] = ()
    parameters: Parameters
    train: Training
    corpus: CorpusFacts
    hardware: dict[str, Any]
    versions: dict[str, Any]
    commit: str

    @property
    def is_dense(self) -> bool:
        """Whether every token uses all experts, so that there is no routing to measure."""
        return self.num_experts <= self.top_k

    @model_validator(mode="before")
    @classmethod
    def _drop_routing_of_dense_models(cls, content: Any) -> Any:
        if isinstance(content, dict):
            experts, top_k = content.get("num_experts"), content.get("top_k")
            if isinstance(experts, int) and isinstance(top_k, int) and experts <= top_k:
                return {key: value for key, value in content.items() if key not in ("routing", "cache")}
        return content

    @model_validator(mode="after")
    def _numbers_agree(self) -> Metrics:
        if not math.isclose(self.perplexity, math.exp(min(self.cross_entropy, 700.0)), rel_tol=1e-3):
            raise ValueError(f"perplexity must be exp(cross_entropy), got {self.perplexity} and {self.cross_entropy}")
        if self.routing is None:
            if not self.is_dense:
                raise ValueError("routing is missing")
            return self
        for name in RoutingMeasures.model_fields:
            layers = len(getattr(self.routing, name).per_layer)
            if layers != self.num_layers:
                raise ValueError(
                    f"routing.{name}.per_layer must have {self.num_layers} values (num_layers), got {layers}"
                )
        return self
