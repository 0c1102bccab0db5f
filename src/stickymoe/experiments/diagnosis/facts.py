"""What a trace holds, before anything is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import ModelSizes
from stickymoe.traces import DECODE, PREFILL, RoutingTrace


@dataclass(frozen=True)
class TraceFacts:
    """The sizes of a trace and what it carries.

    Args:
        name: File name.
        model: Model as the file names it, or an empty string.
        layers: MoE layers.
        layer_names: One a layer.
        num_experts: Experts a layer.
        num_experts_from: `declared`, `given`, `largest id + 1`, or an empty string where the file does not say.
        top_k: Slots a token and layer.
        tokens: Rows.
        sequences: Sequences.
        prefill_tokens: Rows of prefill; None where phases are not known.
        decode_tokens: Rows of decode; None where phases are not known.
        requests: Filled slots of all tokens and layers.
        expert_bytes: Bytes of one expert of each layer, or None.
        has_weights: Whether gate weights are there.
        has_resident: Whether the device's own hits are there.
    """

    name: str
    model: str
    layers: int
    layer_names: tuple[str, ...]
    num_experts: int
    num_experts_from: str
    top_k: int
    tokens: int
    sequences: int
    prefill_tokens: int | None
    decode_tokens: int | None
    requests: int
    expert_bytes: tuple[int, ...] | None
    has_weights: bool
    has_resident: bool

    @property
    def requests_per_token(self) -> float:
        """Experts that one token asks for, over all layers."""
        return self.requests / self.tokens

    def demand(self, semantics: Semantics) -> int:
        """Return the slots that one token asks one cache for."""
        width = 1 if semantics.accesses == "top1" else self.top_k
        return width if semantics.scope == "layer" else width * self.layers

    @property
    def sizes(self) -> ModelSizes:
        """What a budget is measured against."""
        return ModelSizes(self.num_experts, self.layers, self.top_k, self.expert_bytes)


def facts_of(trace: RoutingTrace, name: str) -> TraceFacts:
    """Return what `trace` holds."""
    phases = trace.phases
    told: dict[str, Any] = trace.provenance
    return TraceFacts(
        name=name,
        model=str(told.get("model") or ""),
        layers=trace.num_layers,
        layer_names=tuple(trace.names),
        num_experts=trace.num_experts,
        num_experts_from=str(told.get("num_experts_from") or ""),
        top_k=trace.top_k,
        tokens=trace.num_tokens,
        sequences=trace.num_sequences,
        prefill_tokens=None if phases is None else int(np.count_nonzero(phases == PREFILL)),
        decode_tokens=None if phases is None else int(np.count_nonzero(phases == DECODE)),
        requests=int(np.count_nonzero(trace.expert_ids >= 0)),
        expert_bytes=None if trace.expert_bytes is None else tuple(trace.expert_bytes.tolist()),
        has_weights=trace.expert_weights is not None,
        has_resident=trace.resident is not None,
    )
