"""What the means of an optimiser step divide by: counts over all of its micro-batches and ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stickymoe.capture.inputs import PassInputs, noted_inputs
from stickymoe.core.errors import SettingError
from stickymoe.data.chunks import IGNORED
from stickymoe.losses import Objective

PAIR_DOCUMENTS = "pair_document_ids"


class StepWeights:
    """Counts tokens and pairs before the model runs, so that each micro-batch can add its exact share.

    A mean over a step whose micro-batches hold n_1, n_2, ... pairs is not the mean of their means. Each is therefore
    divided by the step's count. Gradients are averaged over ranks, not added, so the counts are averaged too.

    Args:
        objective: Whose plain means are to be normalised.

    Attributes:
        normalisers: What each of these means divides by, of the step that was counted last.
        own: This rank's part of the counts.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.normalisers: dict[str, Tensor] = {}
        self.own: dict[str, Tensor] = {}

    def count(self, batches: Sequence[Any], device: torch.device) -> None:
        """Count a step's micro-batches; with several ranks, all must call it.

        Raises:
            SettingError: A batch is no mapping or has no `input_ids`.
        """
        self.own = {name: count.to(device) for name, count in added([self._of(batch) for batch in batches]).items()}
        self.normalisers = dict(self.own)
        if self.own and world_size() > 1:
            counts = torch.stack(list(self.own.values()))
            dist.all_reduce(counts)
            self.normalisers = dict(zip(self.own, counts / world_size(), strict=True))

    def forget(self) -> None:
        """Let each batch be normalised by its own counts again."""
        self.normalisers, self.own = {}, {}

    def of_inputs(
        self, inputs: PassInputs, token_mask: Tensor | None, document_ids: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the counts of one forward pass."""
        input_ids = inputs.input_ids
        if input_ids is None:
            raise SettingError("a step's counts must be of batches with input_ids, got one without")
        return self.objective.weights(input_ids, token_mask, document_ids)

    def _of(self, batch: Any) -> dict[str, Tensor]:
        if not isinstance(batch, Mapping):
            raise SettingError(
                f"a step's batches must be mappings that the model is given, got a {type(batch).__name__}: use "
                "StickyObjective where the model is called"
            )
        inputs = noted_inputs((), (), batch)
        return self.of_inputs(inputs, inputs.token_mask, batch.get(PAIR_DOCUMENTS, inputs.document_ids))


def count_targets(batches: Sequence[Mapping[str, Any]], device: torch.device) -> Tensor:
    """Count the targets of a step over all ranks, at least 1; with several ranks, all must call it."""
    targets = torch.stack([_targets(batch).to(device) for batch in batches]).sum()
    if world_size() > 1:
        dist.all_reduce(targets)
    return targets.clamp(min=1)


def _targets(batch: Mapping[str, Any]) -> Tensor:
    if "shift_labels" not in batch and "labels" not in batch:
        raise SettingError.broken("a training batch", "one with labels or shift_labels", ", ".join(batch))
    labels: Tensor = batch["shift_labels"] if "shift_labels" in batch else batch["labels"][..., 1:]
    return labels.ne(IGNORED).sum()


def world_size() -> int:
    """Return how many ranks there are, 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def added(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Add mappings up, name by name."""
    return {name: torch.stack([part[name] for part in parts]).sum(dim=0) for name in parts[0]} if parts else {}
