"""What the means of an optimiser step divide by: counts over all of its micro-batches and ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stickymoe.data.chunks import IGNORED
from stickymoe.losses import Objective


class StepWeights:
    """Counts targets, tokens and pairs before the model runs, so that each micro-batch can add its exact share.

    A mean over a step whose micro-batches hold n_1, n_2, ... pairs is not the mean of their means. Each is therefore
    divided by the step's count. Gradients are averaged over ranks, not added, so the terms' counts are averaged too.

    Args:
        objective: Whose plain means are to be normalised.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.normalisers: dict[str, Tensor] = {}

    def count(self, batches: list[dict[str, Any]], device: torch.device) -> Tensor:
        """Count the micro-batches of a step; with several ranks, all must call it.

        Returns:
            Targets of the step over all ranks, at least 1, as `num_items_in_batch`.
        """
        targets = torch.stack([_targets(batch).to(device) for batch in batches]).sum()
        by_batch = [self._weights(batch) for batch in batches]
        names = list(by_batch[0])
        sums = [torch.stack([weights[name].to(device) for weights in by_batch]).sum() for name in names]
        counts = torch.stack([targets.float(), *(total.float() for total in sums)])
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if ranks > 1:
            dist.all_reduce(counts)
        self.normalisers = {name: counts[place] / ranks for place, name in enumerate(names, start=1)}
        return counts[0].clamp(min=1)

    def _weights(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        mask = batch.get("attention_mask")
        token_mask = mask.bool() if mask is not None and mask.ndim == 2 else None
        documents = batch.get("pair_document_ids", batch.get("document_ids"))
        return self.objective.weights(batch["input_ids"], token_mask, documents)


def _targets(batch: dict[str, Any]) -> Tensor:
    labels: Tensor = batch["shift_labels"] if "shift_labels" in batch else batch["labels"][..., 1:]
    return labels.ne(IGNORED).sum()
