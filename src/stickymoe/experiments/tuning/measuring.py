"""One pass over held-out rows: cross-entropy by document, the gates, and the trace of what was routed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stickymoe.capture.recording.watch import Watch
from stickymoe.data.chunks import IGNORED
from stickymoe.data.rows import PaddedRows, collate_rows
from stickymoe.experiments.captured_gates import gates_of, mean_gates
from stickymoe.metrics.measuring import FEW_UNITS
from stickymoe.traces import RoutingTrace


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass found.

    Attributes:
        nats: Summed cross-entropy of each unit's targets.
        targets: How many these are.
        unit: What a unit is: `documents`, or, of few documents, `pieces`, the rows that they were cut into.
        gate_entropy_bits: Mean entropy of each layer's gates.
        gate_margin: Mean distance of the largest gate from the second, of each layer.
        trace: What was routed, a sequence for each row.
    """

    nats: np.ndarray
    targets: np.ndarray
    unit: str
    gate_entropy_bits: list[float]
    gate_margin: list[float]
    trace: RoutingTrace


@torch.no_grad()
def read_held_out(
    model: Any,
    rows: PaddedRows,
    *,
    batch_size: int,
    provenance: dict[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Pass:
    """Run a model over rows, in evaluation mode, and add up what it says; it is left in the mode it was in.

    Args:
        model: Any model whose routing can be captured.
        rows: What to read.
        batch_size: Rows a pass.
        provenance: What the trace shall say of its origin.
        progress: Called as `progress(rows_done, rows_in_all)`.
    """
    gates: list[tuple[np.ndarray, int]] = []
    documents = rows.row_documents()
    sums: list[np.ndarray] = []
    pieces: list[RoutingTrace] = []
    was_training = model.training
    model.eval()
    try:
        with Watch(model, on_pass=lambda done: gates.append(gates_of(done))) as watch:
            for numbers, batch in _batches(rows, batch_size):
                real = batch["attention_mask"].bool()
                sums.append(_cross_entropies(model, batch))
                pieces.append(watch.piece(batch["input_ids"], real, numbers, documents[numbers], provenance))
                if progress is not None:
                    progress(int(numbers[-1]) + 1, len(rows))
    finally:
        model.train(was_training)
    entropy, margin = mean_gates(gates)
    by_unit, unit = _by_unit(np.concatenate(sums), documents)
    trace = RoutingTrace.concat(pieces, join_sequences=True)
    return Pass(by_unit[:, 0], by_unit[:, 1], unit, entropy, margin, trace)


def _by_unit(sums: np.ndarray, documents: np.ndarray) -> tuple[np.ndarray, str]:
    """Add rows up by document, unless too few documents are left for an interval; units without a target go."""
    counted = sums[:, 1] > 0
    sums, documents = sums[counted], documents[counted]
    numbers, places = np.unique(documents, return_inverse=True)
    if len(numbers) < FEW_UNITS:
        return sums, "pieces"
    totals = np.zeros((len(numbers), 2))
    np.add.at(totals, places, sums)
    return totals, "documents"


def _batches(rows: PaddedRows, batch_size: int) -> Iterator[tuple[np.ndarray, dict[str, Tensor]]]:
    for begin in range(0, len(rows), batch_size):
        numbers = np.arange(begin, min(begin + batch_size, len(rows)))
        yield numbers, collate_rows([rows[int(number)] for number in numbers])


def _cross_entropies(model: Any, batch: dict[str, Tensor]) -> np.ndarray:
    """Return sum and number of targets of each row; in float32, a row at a time, for logits are large."""
    given = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
    with torch.autocast(model.device.type, enabled=False):
        logits = model(**given, use_cache=False).logits
    targets = batch["labels"][:, 1:].to(logits.device)
    found = [
        functional.cross_entropy(row[:-1].float(), wanted, ignore_index=IGNORED, reduction="sum")
        for row, wanted in zip(logits, targets, strict=True)
    ]
    counts = targets.ne(IGNORED).sum(dim=1)
    return torch.stack([torch.stack(found).double(), counts.double()], dim=1).cpu().numpy()
