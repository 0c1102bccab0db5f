"""A log row as curves, for trackers that draw one a name."""

from __future__ import annotations

from typing import Any

from stickymoe.training.meter import PER_LAYER


def curves_of(row: dict[str, Any], layers: tuple[str, ...]) -> dict[str, float]:
    """Return a row for trackers that draw curves: lists become one curve a layer, and measures their mean."""
    curves: dict[str, float] = {}
    for name, value in row.items():
        if name == "terms_by_layer":
            for term, values in value.items():
                if len(values) == len(layers):
                    curves |= {f"{term}/layer_{layer}": each for layer, each in zip(layers, values, strict=True)}
        elif name in PER_LAYER:
            known = {layer: each for layer, each in zip(layers, value, strict=True) if each is not None}
            curves |= {f"{name}/layer_{layer}": each for layer, each in known.items()}
            if known:
                curves[name] = sum(known.values()) / len(known)
        elif name not in ("step", "epoch") and value is not None:
            curves[name] = value
    return curves
