"""Whether an objective fits the model it is to train: settings that contradict each other are refused here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.model import ROUTERS, StickyMoEConfig


def require_fitting(config: Any, coefficients: Mapping[str, float], layers_per_pool: int) -> None:
    """Refuse an objective that cannot do to this model what it says.

    Args:
        config: The model's configuration; one of another architecture is taken at its word.
        coefficients: Terms beside cross-entropy, by name.
        layers_per_pool: How many layers share experts, as the objective was told.

    Raises:
        SettingError: A term on a router that learns nothing, or a cross-layer term that was told of other sharing than
            the model's.
    """
    if not isinstance(config, StickyMoEConfig):
        return
    if ROUTERS[config.router_type].is_fixed:
        for name, coefficient in coefficients.items():
            if coefficient > 0:
                rule = f"0 with model.router_type {config.router_type!r}, whose routing no loss can move"
                raise SettingError.broken(f"objective.{name}", rule, coefficient, "leave it out")
    if "cross_layer" in coefficients and layers_per_pool != config.layers_per_pool:
        rule = f"{config.layers_per_pool}, as the model's experts_shared {config.experts_shared!r} says"
        raise SettingError.broken("objective.layers_per_pool", rule, layers_per_pool)
