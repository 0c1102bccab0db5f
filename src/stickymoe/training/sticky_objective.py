"""`StickyObjective`: locality terms for any training loop and any model, in two lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stickymoe.capture import Capture, CapturedPass, capture_routing
from stickymoe.capture.inputs import noted_inputs
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.losses import Objective, ObjectiveResult


class StickyObjective:
    """An objective on the routing of a model that somebody else's loop trains.

        sticky = StickyObjective(consistency=0.1)
        handle = sticky.attach(model)
        ...
        out = model(**batch)
        loss = out.loss + sticky.loss()

    Several forward passes before one `loss()` count alike. Passes in evaluation mode or without
    gradients do not count, and in evaluation mode `loss()` is 0. The model's own loss and outputs are left as they are.

    A mean over micro-batches of unlike padding is not the mean over all their pairs. Tell a step's batches before
    their passes, and the losses add up to it, however the rows are split; then do not divide them by their number:

        sticky.begin_step(batches)
        for batch in batches:
            (model(**batch).loss / len(batches) + sticky.loss()).backward()

    Args:
        coefficients: Weight of each term by name, as for `Objective`.
        settings: What else `Objective` takes: further coefficients by name, `window`, `reduce`, ...
    """

    def __init__(self, coefficients: Mapping[str, float | int] | None = None, **settings: Any) -> None:
        self.objective = Objective(coefficients, **settings)
        self.terms: dict[str, Tensor] = {}
        self._capture: Capture | None = None
        self._model: nn.Module | None = None
        self._step: dict[str, Tensor] = {}
        self._micro_batches, self._left = 1, 0

    def attach(self, model: nn.Module, *, keep: int | None = None) -> Capture:
        """Capture the model's routing from now on; `remove()` of what is returned ends it.

        Args:
            model: Any MoE model, wrapped or not; before `torch.compile`.
            keep: How many forward passes stand before one `loss()`; all of them if not told. 1 keeps a compiled model
                in one graph.

        Raises:
            CaptureError: The model's routing cannot be captured.
        """
        if self._capture is not None:
            self._capture.remove()
        self._model = model
        self._capture = capture_routing(model, fixed_layers=False, training_only=True, keep=keep)
        return self._capture

    def begin_step(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Count what the plain means of an optimiser step divide by; with several ranks, all must call it.

        Args:
            batches: What the model will be given, one mapping a forward pass, each followed by one `loss()`.

        Raises:
            SettingError: A batch has no `input_ids`, or the model has an encoder and a decoder.
        """
        if len(self._attached().stack_names) > 1:
            raise SettingError("sticky.begin_step must be used with one stack of layers, got an encoder and a decoder")
        counts = []
        for batch in batches:
            inputs = noted_inputs((), (), batch)
            if inputs.input_ids is None:
                raise SettingError("sticky.begin_step must be told batches with input_ids, got one without")
            counts.append(self.objective.weights(inputs.input_ids, inputs.token_mask, inputs.document_ids))
        self._step = added(counts)
        self._micro_batches = self._left = len(batches)
        if dist.is_available() and dist.is_initialized():
            for count in self._step.values():  # averaged, not added: so are gradients over ranks
                dist.all_reduce(count)
                count /= dist.get_world_size()

    def loss(self, *, scale: float = 1.0) -> Tensor:
        """Return the weighted terms of the passes since the last call, and forget these.

        Args:
            scale: Factor on the locality terms, for a warm-up.

        Raises:
            CaptureError: The model is in training mode and no pass with gradients was seen.
        """
        passes = self._attached().take()
        if not passes:
            return self._nothing_seen()
        found = [self._measured(done, scale, len(passes)) for done in passes]
        self._left = max(self._left - 1, 0)
        if self._left == 0:
            self._step, self._micro_batches = {}, 1
        self.terms = added([{name: value.detach() for name, value in result.terms.items()} for result in found])
        return torch.stack([result.total for result in found]).sum()

    def _measured(self, done: CapturedPass, scale: float, passes: int) -> ObjectiveResult:
        """Return one pass's share of the terms."""
        result = self.objective(
            done.routing,
            done.inputs.input_ids,
            scale=scale,
            normalisers=self._step,
            share=1 / self._micro_batches,
        )
        if passes == 1 or self._step:
            return result
        return ObjectiveResult(result.total / passes, {name: value / passes for name, value in result.terms.items()})

    def _nothing_seen(self) -> Tensor:
        assert self._model is not None
        if self._model.training and torch.is_grad_enabled():
            raise CaptureError(
                "no forward pass in training mode was seen since the last sticky.loss(): run the model first, and "
                "attach before torch.compile"
            )
        self.terms = {}
        return next(self._model.parameters()).new_zeros((), dtype=torch.float32)

    def _attached(self) -> Capture:
        if self._capture is None:
            raise CaptureError("nothing is captured: call sticky.attach(model) first")
        return self._capture


def added(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Add mappings up, name by name."""
    return {name: torch.stack([part[name] for part in parts]).sum() for name in parts[0]} if parts else {}
