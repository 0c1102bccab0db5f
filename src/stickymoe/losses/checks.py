"""Checks of an objective's settings, each a one-line error that names the setting as a recipe writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.losses.registry import TERMS


def checked_coefficients(*sources: Mapping[str, float | int]) -> dict[str, float]:
    """Return the coefficients by term, in the registry's order, without those that are 0.

    Raises:
        SettingError: A term is unknown or given twice, or a coefficient is negative or not finite.
    """
    given: dict[str, float] = {}
    for source in sources:
        for name, value in source.items():
            require_known(name)
            if name in given:
                raise SettingError(f"objective.{name} must be given once, got it in the mapping and as a keyword")
            if not (isinstance(value, float | int) and math.isfinite(value) and value >= 0):
                raise SettingError.broken(f"objective.{name}", "a finite number >= 0", value, "0 turns the term off")
            given[name] = float(value)
    return {name: given[name] for name in TERMS if given.get(name, 0.0) > 0.0}


def require_known(name: str, setting: str = "objective") -> None:
    """Refuse a term that is not in the registry, naming the nearest that is."""
    if name not in TERMS:
        hint = nearest(name, TERMS)
        raise SettingError(
            f"{setting} has no term {name!r}" + (f"; {hint}" if hint else f"; known terms are {', '.join(TERMS)}")
        )


def require_window(window: int, setting: str = "objective.window", way_out: str = "4 is the paper's") -> None:
    """Refuse a window that is not a whole number of at least one token."""
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise SettingError.broken(setting, "a whole number >= 1", window, way_out)


def require_lags(lags: tuple[int, ...]) -> None:
    """Refuse lags that are no whole numbers of at least one token, none at all, and one given twice."""
    whole = all(isinstance(lag, int) and not isinstance(lag, bool) and lag >= 1 for lag in lags)
    if not lags or not whole or len(set(lags)) < len(lags):
        rule = "different whole numbers >= 1"
        raise SettingError.broken("objective.lags", rule, list(lags), "ReMoE's are 1, 2, 4, 8, 16")


def require_boundary(weight: float, token_ids: Iterable[int]) -> None:
    """Refuse a weight outside [0, 1], and one that would act on no token."""
    if not 0 <= weight <= 1:
        raise SettingError.broken("objective.boundary_weight", "in [0, 1]", weight, "1 turns boundary weights off")
    if weight < 1 and not list(token_ids):
        raise SettingError.broken(
            "objective.boundary_token_ids",
            "given where boundary_weight is below 1",
            [],
            "name the tokens . ! ? newline",
        )


def require_shared_experts(coefficients: Mapping[str, float], layers_per_pool: int, allow_unshared: bool) -> None:
    """Refuse the cross-layer term where adjacent layers have experts of their own, unless the user insists."""
    if layers_per_pool < 1:
        raise SettingError.broken("objective.layers_per_pool", ">= 1", layers_per_pool, "1 if no layers share experts")
    if "cross_layer" in coefficients and layers_per_pool == 1 and not allow_unshared:
        raise SettingError.broken(
            "objective.cross_layer",
            "0 where adjacent layers do not share experts, since it saves no loads there",
            coefficients["cross_layer"],
            "share them (model.experts_shared), or set objective.allow_unshared to use it all the same",
        )
