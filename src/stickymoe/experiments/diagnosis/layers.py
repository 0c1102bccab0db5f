"""Layers that suffer at the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stickymoe.cache import CacheReport


@dataclass(frozen=True)
class LayerResult:
    """One layer at the budget.

    Args:
        name: Layer.
        lru: LRU's hit rate; None where the layer was never asked.
        belady: Belady's.
        miss_share: Share of all of LRU's misses that are this layer's.
    """

    name: str
    lru: float | None
    belady: float | None
    miss_share: float


def layer_results(lru: CacheReport, belady: CacheReport, names: tuple[str, ...]) -> list[LayerResult]:
    """Return every layer in order."""
    total = max(1, lru.misses)
    lookups = lru.hits_per_layer + lru.misses_per_layer
    return [
        LayerResult(
            name,
            _rate(lru.hits_per_layer[layer], lookups[layer]),
            _rate(belady.hits_per_layer[layer], lookups[layer]),
            float(lru.misses_per_layer[layer]) / total,
        )
        for layer, name in enumerate(names)
    ]


def worst_layers(layers: list[LayerResult], count: int = 3) -> list[LayerResult]:
    """Return the layers of the lowest hit rate under LRU, the lowest first."""
    return sorted((each for each in layers if each.lru is not None), key=lambda each: each.lru or 0.0)[:count]


def _rate(hits: np.integer, lookups: np.integer) -> float | None:
    return None if lookups == 0 else float(hits) / float(lookups)
