"""The hooks on one stack of layers: they note what happens during its forward pass and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from stickymoe.capture.inputs import PassInputs, noted_inputs, parameter_names
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import Call, CapturedPass
from stickymoe.core.errors import CaptureError

_EXPERTS_ARGUMENTS = ("hidden_states", "top_k_index", "top_k_weights")

# What was called, with what the pass was given, gradients on or off
_Raw = tuple[list[Call], PassInputs, bool]


class Stack:
    """One stack of layers: the innermost model that declares routers and sees whole rows of tokens.

    The hooks may be traced into a compiled graph, so they count nothing and build no objects; all sense is made of
    what they noted when it is asked for.

    Args:
        module: The stack.
        path: Where the model holds it.
        layers: Its MoE layers.
        keep: How many passes to keep, the latest; None keeps all.
        keep_gradients: Whether routing shall carry gradients.
        on_pass: Called with each pass at its end.
        prompt_tokens: How many tokens the prompt has, if known.
        training_only: Whether to pass over passes in evaluation mode or without gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        path: str,
        layers: Sequence[MoELayer],
        keep: int | None = 1,
        keep_gradients: bool = True,
        on_pass: Callable[[CapturedPass], None] | None = None,
        prompt_tokens: int | None = None,
        training_only: bool = False,
    ) -> None:
        self.module = module
        self.path = path
        self.layers = tuple(layers)
        self._keep = keep
        self._keep_gradients = keep_gradients
        self._on_pass = on_pass
        self._prompt_tokens = prompt_tokens
        self._training_only = training_only
        self._names = parameter_names(module)
        self._latest: _Raw | None = None
        self._passes: deque[CapturedPass] = deque(maxlen=keep)
        self._open = False
        self._calls: list[Call] = []
        self._inputs: PassInputs | None = None
        self._with_gradients = False
        self._handles: list[RemovableHandle] = []

    def attach(self) -> None:
        """Register the hooks."""
        hooks = self._handles
        hooks.append(self.module.register_forward_pre_hook(self._begin, with_kwargs=True))
        hooks.append(self.module.register_forward_hook(self._end))
        for layer in self.layers:
            for router in layer.routers:
                hooks.append(layer.family.source(router).register_forward_hook(self._note_router))
        experts = dict.fromkeys(layer.experts for layer in self.layers)
        for module in experts:
            if module is not None:
                hooks.append(module.register_forward_pre_hook(self._note_experts, with_kwargs=True))

    def remove(self) -> None:
        """Take the hooks off; what was captured stays."""
        while self._handles:
            self._handles.pop().remove()

    @property
    def passes(self) -> list[CapturedPass]:
        """The passes kept, oldest first."""
        self._settle()
        return list(self._passes)

    def clear(self) -> None:
        """Forget all passes."""
        self._latest = None
        self._passes.clear()

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if getattr(module, "_is_replica", False):
            raise CaptureError("routing cannot be captured under nn.DataParallel; use DistributedDataParallel")
        self._open = False
        self._with_gradients = torch.is_grad_enabled()
        if self._training_only and not (module.training and self._with_gradients):
            return
        self._inputs = noted_inputs(self._names, args, kwargs)
        self._calls = []
        self._open = True

    def _note_router(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._open:  # recomputation in the backward pass is not a second pass
            self._calls.append((True, module, output, torch.is_grad_enabled()))

    def _note_experts(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._open:
            given = [*args, *[kwargs.get(name) for name in _EXPERTS_ARGUMENTS[len(args) :] if kwargs]]
            # The hidden states are not needed, and large
            self._calls.append((False, module, (None, *given[1:]), torch.is_grad_enabled()))

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self._open:
            return
        self._open = False
        assert self._inputs is not None
        self._latest = (self._calls, self._inputs, self._with_gradients)
        if self._keep != 1 or self._on_pass is not None:
            self._settle()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _settle(self) -> None:
        """Make a pass of what was noted last."""
        if self._latest is None:
            return
        calls, inputs, with_gradients = self._latest
        self._latest = None
        done = CapturedPass(self.layers, calls, inputs, with_gradients, self._keep_gradients, self._prompt_tokens)
        self._passes.append(done)
        if self._on_pass is not None:
            self._on_pass(done)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was captured, so that a model with hooks can be copied; the copy's are its own."""
        return self.__dict__ | {"_latest": None, "_passes": deque(maxlen=self._keep), "_calls": [], "_inputs": None}
