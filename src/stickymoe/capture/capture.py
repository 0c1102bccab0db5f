"""`capture_routing`: attach to a model, run it as ever, read what its routers decided."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import nn

from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import CapturedPass
from stickymoe.capture.stack import Stack
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.routing import Routing


class Capture:
    """What `capture_routing` returns: the routing of the last forward pass, and the hooks that take it."""

    def __init__(self, stacks: dict[str, Stack]) -> None:
        """Take charge of attached stacks, by path."""
        self._stacks = stacks

    @property
    def routing(self) -> Routing:
        """What the routers decided in the last forward pass. With an encoder and a decoder: in the decoder's.

        Raises:
            CaptureError: No pass was seen, or its routers were not.
        """
        return self.last.routing

    @property
    def last(self) -> CapturedPass:
        """The last forward pass, of the last stack that ran one."""
        passes = self.passes
        if not passes:
            raise CaptureError(
                "no forward pass was seen: run the model after attaching, and attach before torch.compile (or call "
                "torch._dynamo.reset() after attaching)"
            )
        return passes[-1]

    @property
    def passes(self) -> list[CapturedPass]:
        """The passes kept: stack by stack, each oldest first."""
        return [done for stack in self._stacks.values() for done in stack.passes]

    @property
    def layers(self) -> tuple[MoELayer, ...]:
        """All MoE layers, stack by stack."""
        return tuple(layer for stack in self._stacks.values() for layer in stack.layers)

    @property
    def stack_names(self) -> tuple[str, ...]:
        """The paths of the stacks, to be used with `passes_of`."""
        return tuple(self._stacks)

    def passes_of(self, stack: str) -> list[CapturedPass]:
        """Return the passes kept of one stack, oldest first."""
        require_one_of("stack", stack, self._stacks)
        return self._stacks[stack].passes

    def take(self) -> list[CapturedPass]:
        """Return the passes kept, and forget them."""
        passes = self.passes
        self.clear()
        return passes

    def clear(self) -> None:
        """Forget all passes."""
        for stack in self._stacks.values():
            stack.clear()

    def remove(self) -> None:
        """Take the hooks off the model; what was captured stays. A second call does nothing."""
        for stack in self._stacks.values():
            stack.remove()

    def __enter__(self) -> Capture:
        """Return the capture, attached already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Take the hooks off."""
        self.remove()


def capture_routing(
    model: nn.Module,
    *,
    gradients: bool = True,
    fixed_layers: bool = True,
    training_only: bool = False,
    keep: int | None = 1,
    prompt_tokens: int | None = None,
    on_pass: Callable[[CapturedPass], None] | None = None,
) -> Capture:
    """Capture what the routers of a model decide, from its next forward pass on.

        with capture_routing(model) as capture:
            out = model(**batch)
            loss = out.loss + Objective(consistency=0.1)(capture.routing).total

        handle = capture_routing(model)  # for longer
        handle.remove()

    Neither outputs nor loss of the model change. Attach before `torch.compile`; wrappers (PEFT, accelerate,
    DistributedDataParallel) may come before or after.

    Args:
        model: Any MoE model of transformers, the reference model, or one built like them; also wrapped.
        gradients: Whether the routing shall carry gradients. Without, it is detached.
        fixed_layers: Whether to take in layers whose choice is settled before training (hash routing).
        training_only: Whether to pass over passes in evaluation mode or without gradients.
        keep: How many passes of each stack to keep, the latest; None for all. Compiled, more than one breaks the graph.
        prompt_tokens: How many tokens the prompt has, so that a last chunk of one token is told from a step.
        on_pass: Called with each pass at its end.

    Raises:
        CaptureError: The model is dense, refused, or built in a way that cannot be captured; or nothing but fixed
            layers was to be captured.
    """
    if keep is not None and keep < 1:
        raise SettingError.broken("keep", ">= 1, or None for all", keep)
    stacks = {}
    for path, (module, layers) in find_stacks(model).items():
        wanted = [layer for layer in layers if fixed_layers or not layer.is_fixed]
        stacks[path] = Stack(module, path, wanted, keep, gradients, on_pass, prompt_tokens, training_only)
    if not any(stack.layers for stack in stacks.values()):
        raise CaptureError(
            f"every MoE layer of {type(model).__name__} chooses by a fixed table, which no loss can move"
        )
    for stack in stacks.values():
        stack.attach()
    return Capture(stacks)
