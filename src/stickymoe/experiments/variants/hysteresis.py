"""Hysteresis: Hard-Window's bonus made small, so that a clearly better expert still takes over."""

from __future__ import annotations

from stickymoe.experiments.variants.soft import soft
from stickymoe.experiments.variants.variant import Variant


def hysteresis(window: int, bonus: float, *, recursive: bool = False) -> Variant:
    """Add `bonus` to the logits of the experts of the last `window` tokens; see `stickymoe.model.window_router`."""
    kind, says = ("-recursive", ", recursive") if recursive else ("", "")
    settings = {"router_type": "hysteresis", "router_window": window, "router_bonus": bonus}
    overrides = {f"model.{key}": value for key, value in {**settings, "router_recursive": recursive}.items()}
    return Variant(f"hysteresis{kind}-w{window}-b{bonus:g}", f"Hysteresis W={window} β={bonus:g}{says}", overrides)


HYSTERESES = tuple(hysteresis(window, bonus) for window in (1, 2, 4) for bonus in (0.4, 1.0, 2.0))
RECURSIVE_HYSTERESES = tuple(hysteresis(1, bonus, recursive=True) for bonus in (0.4, 1.0, 2.0))
SOFT_HYSTERESES = tuple(
    soft(coefficient) + hysteresis(window, bonus)
    for coefficient in (0.01, 0.05)
    for window, bonus in ((1, 1.0), (2, 0.4))
)
