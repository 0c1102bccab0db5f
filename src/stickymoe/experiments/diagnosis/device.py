"""What the device itself counted, beside what replay says of the same rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stickymoe.cache import simulate
from stickymoe.cache.settings import Semantics
from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.traces import DECODE, RoutingTrace

HIT = 1
PREFETCHED = 2
_AGREES = 0.01


@dataclass(frozen=True)
class DeviceCheck:
    """The device's own hits, from the trace: each expert once a forward pass and layer, as a device asks for it.

    Args:
        lookups: Those for which the device said whether the expert was resident.
        hit_rate: Hits, prefetched experts among them.
        decode_hit_rate: The same in decode; None where phases are not known.
        prefetched: Share of the lookups that only prefetching had made resident.
        replayed: LRU's hit rate at the budget under the same rules.
        decode_replayed: The same in decode.
        counted: The rules of the replay.
    """

    lookups: int
    hit_rate: float
    decode_hit_rate: float | None
    prefetched: float
    replayed: float
    decode_replayed: float | None
    counted: str

    @property
    def agrees(self) -> bool:
        """Whether device and replay are within a point of each other, in decode where that is known."""
        if self.decode_hit_rate is None or self.decode_replayed is None:
            return abs(self.hit_rate - self.replayed) <= _AGREES
        return abs(self.decode_hit_rate - self.decode_replayed) <= _AGREES


def device_check(
    trace: RoutingTrace, budget: Budget, semantics: Semantics, unanswered: dict[str, str]
) -> DeviceCheck | None:
    """Return what the device saw, None with the reason in `unanswered` where the trace does not tell."""
    question = "the device's hits"
    if trace.resident is None:
        unanswered[question] = "the trace does not say what was resident"
        return None
    seen, decoding = _first_lookups(trace)
    if not seen.size:
        unanswered[question] = "the trace says of no access whether it was resident"
        return None
    rules = semantics.keywords(prefill="pass", count="unique", accesses="topk", replay="atomic", batch=1)
    replayed = simulate(trace, "lru", **budget.keywords(), **rules)
    hits, misses = replayed.phase("decode")
    phases = trace.phases is not None and decoding.any()
    return DeviceCheck(
        lookups=int(seen.size),
        hit_rate=float((seen >= HIT).mean()),
        decode_hit_rate=float((seen[decoding] >= HIT).mean()) if phases else None,
        prefetched=float((seen == PREFETCHED).mean()),
        replayed=replayed.hit_rate,
        decode_replayed=hits / max(1, hits + misses) if phases else None,
        counted=replayed.describe(),
    )


def _first_lookups(trace: RoutingTrace) -> tuple[np.ndarray, np.ndarray]:
    """Return what the device saw at the first lookup of each expert in each pass and layer, and whether in decode."""
    assert trace.resident is not None
    tokens = np.arange(trace.num_tokens)
    passes = tokens if trace.event_ids is None else _pass_numbers(trace.sequence_ids, trace.event_ids)
    told = trace.resident >= 0
    token, layer, slot = np.nonzero(told)
    expert = trace.expert_ids[token, layer, slot].astype(np.int64)
    key = (passes[token] * trace.num_layers + layer) * trace.num_experts + expert
    first = np.unique(key, return_index=True)[1]
    decode = np.zeros(trace.num_tokens, dtype=bool) if trace.phases is None else trace.phases == DECODE
    return trace.resident[token[first], layer[first], slot[first]], decode[token[first]]


def _pass_numbers(sequence_ids: np.ndarray, event_ids: np.ndarray) -> np.ndarray:
    changed = (np.diff(sequence_ids) != 0) | (np.diff(event_ids) != 0)
    numbers: np.ndarray = np.concatenate([[0], np.cumsum(changed)]).astype(np.int64)
    return numbers
