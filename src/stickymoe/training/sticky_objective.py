"""`StickyObjective`: locality terms for any training loop and any model, in two lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stickymoe.capture import Capture, CapturedPass, capture_routing
from stickymoe.core.errors import CaptureError, SettingError
from stickymoe.losses import Objective, ObjectiveResult
from stickymoe.routing import Routing
from stickymoe.training.accumulation import StepWeights, added


@dataclasses.dataclass(frozen=True, eq=False)
class StepShare:
    """What the passes of one `loss()` add to the step.

    Attributes:
        total: The weighted terms.
        terms: Each unweighted, by name, without gradient.
        by_layer: The values whose mean a term is, one a layer.
        routings: What was routed, one a pass, without gradient.
    """

    total: Tensor
    terms: dict[str, Tensor]
    by_layer: dict[str, Tensor]
    routings: tuple[Routing, ...]


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
        coefficients: Weight of each term by name, as for `Objective`; or an `Objective`, without settings.
        settings: What else `Objective` takes: further coefficients by name, `window`, `reduce`, ...

    Attributes:
        objective: The terms and their weights.
        terms: The terms of the last `loss()`, unweighted.
        by_layer: The values whose means they are, one a layer.
        layer_names: The numbers of these layers, as the model counts them, dense layers too.
    """

    def __init__(self, coefficients: Mapping[str, float | int] | Objective | None = None, **settings: Any) -> None:
        if not isinstance(coefficients, Objective):
            coefficients = Objective(coefficients, **settings)
        elif settings:
            raise SettingError(
                f"settings must be those of the Objective that was given, got {', '.join(settings)} beside it"
            )
        self.objective = coefficients
        self.terms: dict[str, Tensor] = {}
        self.by_layer: dict[str, Tensor] = {}
        self.layer_names: tuple[str, ...] = ()
        self._capture: Capture | None = None
        self._model: nn.Module | None = None
        self._weights = StepWeights(self.objective)
        self._seen: list[dict[str, Tensor]] = []
        self._is_checked = False
        self._micro_batches, self._left = 1, 0

    def attach(self, model: nn.Module, *, keep: int | None = None, fixed_layers: bool = False) -> Capture:
        """Capture the model's routing from now on; `remove()` of what is returned ends it.

        Args:
            model: Any MoE model, wrapped or not; before `torch.compile`.
            keep: How many forward passes stand before one `loss()`; all of them if not told. 1 keeps a compiled model
                in one graph.
            fixed_layers: Whether to take in layers whose choice is settled before training, which no loss can move.

        Raises:
            CaptureError: The model's routing cannot be captured.
        """
        if self._capture is not None:
            self._capture.remove()
        self._model, self._is_checked = model, False
        self._capture = capture_routing(model, fixed_layers=fixed_layers, training_only=True, keep=keep)
        return self._capture

    def begin_step(self, batches: Sequence[Any], device: torch.device | str | None = None) -> None:
        """Count what the plain means of an optimiser step divide by; with several ranks, all must call it.

        A batch may hold `pair_document_ids`: documents at whose borders pairs end, of which the model is not told.

        Args:
            batches: What the model will be given, one mapping a forward pass, each followed by one `loss()`.
            device: Where ranks exchange the counts; the model's if not told.

        Raises:
            SettingError: A batch is no mapping or has no `input_ids`, or the model has an encoder and a decoder.
        """
        if len(self._attached().stack_names) > 1:
            raise SettingError("sticky.begin_step must be used with one stack of layers, got an encoder and a decoder")
        assert self._model is not None
        self._weights.count(batches, torch.device(device or next(self._model.parameters()).device))
        self._micro_batches = self._left = len(batches)
        self._seen = []

    def loss(self, *, scale: float = 1.0) -> Tensor:
        """Return the weighted terms of the passes since the last call, and forget these.

        Args:
            scale: Factor on the locality terms, for a warm-up.

        Raises:
            CaptureError: The model is in training mode and no pass with gradients was seen, or the passes held other
                rows than `begin_step` was told.
        """
        share = self.share(scale=scale)
        self.terms, self.by_layer = share.terms, share.by_layer
        return share.total

    def share(self, *, scale: float = 1.0, document_ids: Tensor | None = None) -> StepShare:
        """Do what `loss()` does, and return all that was found.

        Args:
            scale: Factor on the locality terms, for a warm-up.
            document_ids: Documents at whose borders pairs end, of which the model was not told.
        """
        passes = self._attached().take()
        if not passes:
            return self._nothing_seen()
        if document_ids is None:
            routings = [done.routing for done in passes]
        else:
            routings = [dataclasses.replace(done.routing, document_ids=document_ids) for done in passes]
        self.layer_names = passes[-1].layer_names
        found = [self._weighed(*each, scale, len(passes)) for each in zip(passes, routings, strict=True)]
        self._end_micro_batch(passes, routings)
        return StepShare(
            torch.stack([result.total for result in found]).sum(),
            added([{name: value.detach() for name, value in result.terms.items()} for result in found]),
            added([result.by_layer for result in found]),
            tuple(routing.detach() for routing in routings),
        )

    def _weighed(self, done: CapturedPass, routing: Routing, scale: float, passes: int) -> ObjectiveResult:
        """Return one pass's share of the terms."""
        result = self.objective(
            routing,
            done.inputs.input_ids,
            scale=scale,
            normalisers=self._weights.normalisers,
            share=1 / self._micro_batches,
        )
        if passes == 1 or self._weights.normalisers:
            return result
        terms = {name: value / passes for name, value in result.terms.items()}
        by_layer = {name: values / passes for name, values in result.by_layer.items()}
        return ObjectiveResult(result.total / passes, terms, by_layer)

    def _end_micro_batch(self, passes: Sequence[CapturedPass], routings: Sequence[Routing]) -> None:
        """Count down to the end of the step; of the first, hold what was told against what was seen."""
        if self._left and not self._is_checked:
            for done, routing in zip(passes, routings, strict=True):
                self._seen.append(self._weights.of_inputs(done.inputs, routing.token_mask, routing.document_ids))
        self._left = max(self._left - 1, 0)
        if self._left:
            return
        if self._seen:
            self._require_as_told()
        self._weights.forget()
        self._micro_batches, self._seen = 1, []

    def _require_as_told(self) -> None:
        self._is_checked = True
        for name, seen in added(self._seen).items():
            told = self._weights.own[name]
            if abs(float(seen) - float(told)) > 1e-3 * float(told):
                raise CaptureError(
                    f"the model was given rows of weight {float(seen):g} for {name}, the step's batches had "
                    f"{float(told):g}: tell begin_step exactly what the model is given"
                )

    def _nothing_seen(self) -> StepShare:
        assert self._model is not None
        if self._model.training and torch.is_grad_enabled():
            raise CaptureError(
                "no forward pass in training mode was seen since the last sticky.loss(): run the model first, and "
                "attach before torch.compile"
            )
        return StepShare(next(self._model.parameters()).new_zeros((), dtype=torch.float32), {}, {}, ())

    def _attached(self) -> Capture:
        if self._capture is None:
            raise CaptureError("nothing is captured: call sticky.attach(model) first")
        return self._capture
