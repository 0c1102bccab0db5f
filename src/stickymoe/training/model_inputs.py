"""Hands the batches of this project's corpora to models that call things otherwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stickymoe.capture.inputs import parameter_names
from stickymoe.data.chunks import IGNORED


def fitted_inputs(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return `inputs` under the names that the model's `forward` knows.

    `shift_labels` alone would leave a model of transformers without loss: it looks for `labels`, then takes
    `shift_labels` if it has both. `document_ids` are unknown to it: it tells packed documents by positions that
    restart, and only where there is no mask, so padding is cut out and the rows are packed into one.
    """
    known = parameter_names(model)
    inputs = dict(inputs)
    if "shift_labels" in inputs and "labels" not in inputs and "shift_labels" not in known:
        inputs["labels"] = inputs["shift_labels"]
    if "document_ids" in inputs and "document_ids" not in known:
        inputs = _packed(inputs)
    return inputs


def _packed(inputs: dict[str, Any]) -> dict[str, Any]:
    """Turn documents into positions, in one row where there is padding."""
    documents: Tensor = inputs.pop("document_ids")
    mask = inputs.pop("attention_mask", None)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[:, 1:] = documents[:, 1:] != documents[:, :-1]
    if mask is not None and not bool(mask.all()):
        real = mask.bool()
        first = real & (real.cumsum(dim=1) == 1)
        if "labels" in inputs:  # nor may the end of the row before predict a row's beginning
            inputs["labels"] = inputs["labels"].masked_fill(first, IGNORED)
        of_tokens = [name for name, value in inputs.items() if isinstance(value, Tensor) and value.shape == mask.shape]
        inputs |= {name: inputs[name][real][None] for name in of_tokens}
        starts = (starts | first)[real][None]
    places = torch.arange(starts.shape[1], device=starts.device).expand(starts.shape)
    inputs["position_ids"] = places - torch.where(starts, places, 0).cummax(dim=1).values
    inputs["use_cache"] = False
    return inputs
