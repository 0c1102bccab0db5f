"""The load-balancing loss that a model adds to its own loss: what it is, and how much of it is in a Trainer's loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_COEFFICIENTS = ("router_aux_loss_coef", "aux_loss_coef")


def own_aux_loss(outputs: Any) -> Tensor | None:
    """Return the load-balancing loss among a model's outputs; None where it has none or was not asked for it."""
    aux = outputs.get("aux_loss") if isinstance(outputs, Mapping) else None
    return aux if isinstance(aux, Tensor) else None


def own_aux_coefficient(model: nn.Module) -> float:
    """Return what a model multiplies its load-balancing loss by; 0 where it does not tell.

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


def weight_in(loss: Tensor, aux: Tensor) -> float:
    """Return the factor with which `aux` stands in `loss`, found by differentiating the one by the other; 0 if not."""
    if not (loss.requires_grad and aux.requires_grad):
        return 0.0
    (weight,) = torch.autograd.grad(loss, aux, retain_graph=True, allow_unused=True)
    return 0.0 if weight is None else float(weight)


class OwnAuxLoss:
    """Notes a model's load-balancing loss where the model hands it out, before wrappers make copies of it.

    Copies would not do: a loss that a data-parallel wrapper hands out does not depend on the copy beside it.
    """

    def __init__(self) -> None:
        self._seen: list[Tensor] = []
        self._handle: RemovableHandle | None = None

    def attach(self, model: nn.Module) -> None:
        """Note the outputs of this model from now on, and no longer those of another."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = model.register_forward_hook(self._note)

    def _note(self, model: nn.Module, args: Any, outputs: Any) -> None:
        aux = own_aux_loss(outputs)
        if aux is not None and model.training and torch.is_grad_enabled():
            self._seen.append(aux)

    def take(self) -> Tensor | None:
        """Return what was noted since the last call; None where nothing was, or several passes were."""
        seen, self._seen = self._seen, []
        return seen[0] if len(seen) == 1 else None
