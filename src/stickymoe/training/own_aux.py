"""The load-balancing loss that a model adds to its own loss, and how often a Trainer counts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

_COEFFICIENTS = ("router_aux_loss_coef", "aux_loss_coef")


def own_aux_loss(outputs: Any) -> Tensor | None:
    """Return the load-balancing loss among a model's outputs; None where it has none or was not asked for it."""
    aux = outputs.get("aux_loss") if isinstance(outputs, Mapping) else None
    return aux if isinstance(aux, Tensor) else None


def own_aux_coefficient(model: nn.Module) -> float:
    """Return what the model multiplies its load-balancing loss by; 0 where it does not tell.

    Args:
        model: The model itself, not its wrappers; PEFT's hands attributes through.
    """
    config: Any = getattr(model, "config", None)
    for holder in (model, getattr(config, "text_config", None), config):
        for name in _COEFFICIENTS:
            value = getattr(holder, name, None)
            if isinstance(value, int | float):
                return float(value)
    return 0.0
