"""`inject_gradients`: a loss on routing whose gradient enters inside the layers, where routing cannot be handed out."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.hooks import RemovableHandle

from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.families import OwnFamily
from stickymoe.capture.inputs import PassInputs, noted_inputs, parameter_names
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import by_falling_weight
from stickymoe.core.errors import CaptureError
from stickymoe.routing import Routing


class Injection:
    """What `inject_gradients` returns: the hooks, and the value of the loss for the log.

    Args:
        layers: The MoE layers.
        loss: From one layer's routing to a scalar.
        scale: What gradients are multiplied by; may be changed between passes.
    """

    def __init__(self, layers: list[MoELayer], loss: Callable[[Routing], Tensor], scale: float) -> None:
        self.scale = scale
        self._loss = loss
        self._count = len(layers)
        self._values: list[Tensor] = []
        self._outputs: dict[nn.Module, Any] = {}
        self._inputs: PassInputs | None = None
        self._open = self._with_gradients = self._aside = False
        self._owed = 0
        self._handles: list[RemovableHandle] = []

    @property
    def value(self) -> float:
        """The loss of the last forward pass, unscaled, averaged over layers."""
        if not self._values:
            raise CaptureError("no forward pass was seen since gradients are injected: run the model first")
        return float(torch.stack(self._values).mean())

    def remove(self) -> None:
        """Take the hooks off."""
        while self._handles:
            self._handles.pop().remove()

    def reset(self) -> None:
        """Forget a forward pass whose backward pass will never come."""
        self._owed = 0

    def __enter__(self) -> Injection:
        """Return the injection, attached already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the hooks off."""
        self.remove()

    def attach(self, stack: nn.Module, layers: list[MoELayer]) -> None:
        """Register the hooks on one stack."""
        names = parameter_names(stack)
        self._handles.append(
            stack.register_forward_pre_hook(lambda _, args, kwargs: self._begin(names, args, kwargs), with_kwargs=True)
        )
        self._handles.append(stack.register_forward_hook(lambda *_: self._end()))
        for layer in layers:
            self._attach_layer(layer)

    def _attach_layer(self, layer: MoELayer) -> None:
        def note(source: nn.Module, args: Any, output: Any) -> Any:
            if isinstance(layer.family, OwnFamily):
                weights = self._injected(layer, layer.routers[0], output, (), output.expert_weights)
                return output._replace(expert_weights=weights)
            self._outputs[source] = output
            return None

        for router in layer.routers:
            self._handles.append(layer.family.source(router).register_forward_hook(note))
        if layer.experts is not None:

            def enter(experts: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
                router = next((one for one in layer.routers if layer.family.source(one) in self._outputs), None)
                if router is None:
                    raise CaptureError(
                        f"no router ran before the experts of layer {layer.name}: attach before compiling"
                    )
                output = self._outputs.pop(layer.family.source(router))
                return (*args[:2], self._injected(layer, router, output, args, args[2]), *args[3:])

            self._handles.append(layer.experts.register_forward_pre_hook(enter))

    def _begin(self, names: list[str], args: Any, kwargs: Any) -> None:
        with_gradients = torch.is_grad_enabled()
        if self._owed > 0 and with_gradients:
            raise CaptureError(
                "a second forward pass began before the backward pass of the first, whose padding and documents would "
                "be lost: call backward() after each forward, or reset() if there will be none"
            )
        self._aside = self._owed > 0  # an evaluation in between, which must not overwrite what is still needed
        if not self._aside:
            self._inputs = noted_inputs(names, args, kwargs)
            self._values = []
            self._open, self._with_gradients = True, with_gradients

    def _end(self) -> None:
        self._open = self._aside = False

    def _injected(
        self, layer: MoELayer, router: nn.Module, output: Any, given: tuple[Any, ...], weights: Tensor
    ) -> Tensor:
        """Return the weights with the loss of this layer hung on them; the same values, bit by bit."""
        if self._aside or self._inputs is None:
            return weights
        if self._open and self._with_gradients and not torch.is_grad_enabled():
            self._owed += 1  # a reentrant checkpoint, which will come back here in the backward pass
        elif not self._open and self._owed > 0:
            self._owed -= 1
        decision = layer.family.decide(router, layer.index, output, given)
        batch, seq = self._inputs.shape
        ids, chosen = by_falling_weight(decision.expert_ids, decision.expert_weights)
        parts = (decision.router_logits, decision.gate_probs, ids, chosen)
        logits, gates, ids, chosen = (part.reshape(batch, seq, part.shape[-1]) for part in parts)
        mask, documents = self._inputs.token_mask, self._inputs.document_ids
        value = self._loss(Routing((logits,), (gates,), (ids,), (chosen,), mask, documents))
        if self._open:
            self._values.append(value.detach())
        hung: Tensor = _Hang.apply(weights, value * (self.scale / self._count))  # type: ignore[no-untyped-call]
        return hung


class _Hang(torch.autograd.Function):
    """Hands `carrier` through and sends a gradient of 1 into `value`."""

    @staticmethod
    def forward(ctx: Any, carrier: Tensor, value: Tensor) -> Tensor:
        ctx.like = value.shape, value.dtype, value.device
        return carrier.view_as(carrier)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        shape, dtype, device = ctx.like
        return gradient, torch.ones(shape, dtype=dtype, device=device)


def inject_gradients(model: nn.Module, loss: Callable[[Routing], Tensor], *, scale: float = 1.0) -> Injection:
    """Train on a loss of each layer's routing without handing routing out: for reentrant checkpoints and pipelines.

        with inject_gradients(model, lambda routing: objective(routing).total, scale=1 / accumulation_steps):
            model(**batch).loss.backward()

    The gradient is that of `scale` times the mean over layers of `loss`, whatever the model's own loss is multiplied by
    later: put 1 / accumulation steps into it, and a gradient scaler's scale. Prefer `capture_routing` where it works.

    Args:
        model: Any model that `capture_routing` takes, but for families whose experts receive no weights.
        loss: From the routing of one layer to a scalar; terms across layers cannot be had.
        scale: What gradients are multiplied by.

    Raises:
        CaptureError: The model has no routers, or its experts receive no weights to hang a gradient on.
    """
    stacks = find_stacks(model)
    layers = [layer for _, of_stack in stacks.values() for layer in of_stack if not layer.is_fixed]
    for layer in layers:
        own = isinstance(layer.family, OwnFamily)
        if not own and (layer.experts is None or not layer.family.weighs_in_experts):
            raise CaptureError(
                f"gradients cannot be injected into {layer.family.name!r}, whose experts receive no weights; use "
                'capture_routing with model.activation_checkpointing_enable({"use_reentrant": False})'
            )
    injection = Injection(layers, loss, scale)
    for stack, of_stack in stacks.values():
        injection.attach(stack, [layer for layer in of_stack if not layer.is_fixed])
    return injection
