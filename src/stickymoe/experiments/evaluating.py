"""One pass over a whole split by a model of any architecture, whose routing is captured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from stickymoe.capture.recording.facts import LayerFacts
from stickymoe.capture.recording.watch import Watch
from stickymoe.core.settings import require_at_least
from stickymoe.data import TokenChunks, collate_chunks
from stickymoe.experiments.captured_gates import gates_of, mean_gates
from stickymoe.traces import RoutingTrace
from stickymoe.training import Evaluation
from stickymoe.training.evaluate import cache_reports, require_whole, trace_of_split
from stickymoe.training.memory import keep_freed_memory
from stickymoe.training.model_inputs import fitted_inputs


def evaluate_captured(
    model: PreTrainedModel,
    chunks: TokenChunks,
    *,
    split: str,
    batch_size: int,
    provenance: dict[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure a model as `stickymoe.training.evaluate` measures the reference model.

    Args:
        model: Any model whose routing can be captured, where it is to compute.
        chunks: The split, cut with `keep_tail=True`.
        split: The split's name.
        batch_size: Chunks a forward pass, >= 1.
        provenance: What the trace shall say of its origin; JSON.
        progress: Called as `progress(chunks_done, chunks_in_all)` after every batch.

    Raises:
        SettingError: `batch_size` below 1, or `chunks` leave tokens of the split out.
        CaptureError: The routing cannot be captured.
    """
    require_at_least("evaluate.batch_size", batch_size, 1)
    predicted = require_whole(chunks)
    if model.device.type == "cpu":
        keep_freed_memory()
    gates: list[tuple[np.ndarray, int]] = []
    losses: list[float] = []
    pieces: list[RoutingTrace] = []
    was_training = model.training
    model.train(False)
    try:
        with torch.no_grad(), Watch(model, on_pass=lambda done: gates.append(gates_of(done))) as watch:
            for done, batch in _batches(chunks, batch_size):
                losses.append(_cross_entropy(model, batch))
                ids = batch["input_ids"]
                rows = np.arange(len(ids))
                pieces.append(watch.piece(ids, torch.ones_like(ids).bool(), rows, rows, {}))
                if progress is not None:
                    progress(done, len(chunks))
            facts = watch.facts
    finally:
        model.train(was_training)
    entropy, margin = mean_gates(gates)
    trace = trace_of_split(
        chunks,
        np.concatenate([piece.expert_ids for piece in pieces]),
        facts.num_experts,
        expert_weights=np.concatenate([piece.expert_weights for piece in pieces if piece.expert_weights is not None]),
        layer_names=facts.names,
        expert_bytes=facts.expert_bytes,
        provenance=provenance,
    )
    return Evaluation(
        split=split,
        cross_entropy=math.fsum(losses) / predicted,
        predicted_tokens=predicted,
        gate_entropy_bits=entropy,
        gate_margin=margin,
        trace=trace,
        cache=cache_reports(trace),
        parameters=_parameters(model, facts, trace.top_k),
    )


def _batches(chunks: TokenChunks, batch_size: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Yield batches without padding: a last, shorter chunk stands alone."""
    full = len(chunks) - (len(chunks[len(chunks) - 1]["input_ids"]) < chunks.seq_len)
    begins = [*range(0, full, batch_size), *range(full, len(chunks))]
    for begin, end in zip(begins, [*begins[1:], len(chunks)], strict=True):
        yield end, collate_chunks([chunks[index] for index in range(begin, end)])


def _cross_entropy(model: PreTrainedModel, batch: dict[str, Tensor]) -> float:
    """Return the sum over a batch's targets, in float32; the model's own loss may hold terms beside it."""
    batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
    targets = batch.pop("shift_labels")
    with torch.autocast(model.device.type, enabled=False):
        logits = model(**(fitted_inputs(model, batch) | {"use_cache": False})).logits
    of_rows = [functional.cross_entropy(*row, reduction="sum") for row in zip(logits.float(), targets, strict=True)]
    return float(torch.stack(of_rows).sum())


def _parameters(model: PreTrainedModel, facts: LayerFacts, top_k: int) -> dict[str, int]:
    """Return `total`, and `active`: without the experts of each layer that do not serve a token, as far as is known."""
    total = sum(parameter.numel() for parameter in model.parameters())
    if facts.expert_bytes is None:
        return {"total": total, "active": total}
    idle = {
        name.partition("#")[0]: max(experts - top_k, 0) * int(size)  # a looped layer has its experts once
        for name, experts, size in zip(facts.names, facts.experts, facts.expert_bytes, strict=True)
    }
    return {"total": total, "active": total - sum(idle.values()) // model.dtype.itemsize}
