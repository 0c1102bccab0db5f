"""A frozen copy of each router, asked beside it about the same hidden states: what the trust term holds it to."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.layers import MoELayer
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.model import RouterDecision
from stickymoe.routing import Routing


class FrozenRouters:
    """Copies the routers of a model as they are now, and asks the copies in every training pass.

    What a copy is asked is what its router was asked: the hidden states of the model in training, whose earlier layers
    may route otherwise by now. Copies keep the routers' type, so that equal weights give equal gates to the last bit.

    Args:
        model: Any model with one stack of layers whose routing can be captured.

    Raises:
        SettingError: The model has an encoder and a decoder, or layers with several routers.
        CaptureError: The model's routing cannot be captured.
    """

    def __init__(self, model: nn.Module) -> None:
        stacks = {path: found for path, found in find_stacks(model).items() if found[1]}
        if len(stacks) != 1:
            raise SettingError.broken("objective.trust", "0 for a model with an encoder and a decoder", "a weight")
        ((module, layers),) = stacks.values()
        self._copies: dict[nn.Module, _Copy] = {}
        for layer in layers:
            if layer.is_fixed:
                continue
            if len(layer.routers) != 1:
                rule = f"0 where a layer has {len(layer.routers)} routers, as {layer.name} has"
                raise SettingError.broken("objective.trust", rule, "a weight")
            self._copies[layer.routers[0]] = _Copy(layer)
        self._passes: deque[list[Tensor]] = deque()
        self._open: list[Tensor] | None = None
        self._handles: list[RemovableHandle] = [
            module.register_forward_pre_hook(self._begin),
            module.register_forward_hook(self._end),
            *(router.register_forward_hook(self._ask, with_kwargs=True) for router in self._copies),
        ]

    def take(self, routing: Routing) -> tuple[Tensor, ...]:
        """Return the copies' gates for the oldest pass not taken yet, in the shape of `routing`.

        Raises:
            CaptureError: That pass was not seen, or not by as many routers.
        """
        gates = self._passes.popleft() if self._passes else []
        if len(gates) != routing.num_layers:
            raise CaptureError(
                f"the frozen routers saw {len(gates)} calls in a pass of {routing.num_layers} layers; attach them "
                "before the model runs, and run it once for each loss"
            )
        return tuple(each.reshape(like.shape) for each, like in zip(gates, routing.gate_probs, strict=True))

    def remove(self) -> None:
        """Take the hooks off the model."""
        while self._handles:
            self._handles.pop().remove()

    def _begin(self, module: nn.Module, _: Any) -> None:
        # only passes that a loss may follow; recomputation in the backward pass is none
        self._open = [] if module.training and torch.is_grad_enabled() else None

    def _ask(self, router: nn.Module, args: Any, kwargs: Any, _: Any) -> None:
        if self._open is not None:
            self._open.append(self._copies[router].gates(args, kwargs))

    def _end(self, *_: Any) -> None:
        if self._open is not None:
            self._passes.append(self._open)
        self._open = None


class _Copy:
    """The frozen copy of one layer's router."""

    def __init__(self, layer: MoELayer) -> None:
        self._layer = layer
        self._router = _without_hooks(layer.routers[0]).eval().requires_grad_(False)
        self._heard: list[Any] = []
        layer.family.source(self._router).register_forward_hook(lambda *seen: self._heard.append(seen[2]))

    @torch.no_grad()
    def gates(self, args: Any, kwargs: Any) -> Tensor:
        """Return the gates for what the router was called with."""
        self._router(*args, **kwargs)
        output = self._heard.pop()
        if isinstance(output, RouterDecision):
            return output.gate_probs
        logits = output if isinstance(output, Tensor) else output[self._layer.index]
        return self._layer.family.gates(self._router, logits)


def _without_hooks(router: nn.Module) -> nn.Module:
    """Copy a router but not its hooks, through which copying would reach the whole model."""
    memo: dict[int, Any] = {
        id(hooks): OrderedDict()
        for module in router.modules()
        for name, hooks in vars(module).items()
        if name.endswith("_hooks") and isinstance(hooks, OrderedDict)
    }
    return copy.deepcopy(router, memo)
