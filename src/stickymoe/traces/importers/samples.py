"""Batches of padded samples as Hugging Face models see them, cut into sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.requests import Request
from stickymoe.traces.importers.tensors import Tensor, load

COLUMNS = {"attention_mask": 2, "input_ids": 2, "sequence_lengths": 1}


@dataclass(frozen=True)
class Batch:
    """Which tokens of a batch are real.

    Args:
        mask: (samples, tokens).
        token_ids: (samples, tokens); None where not told.
    """

    mask: np.ndarray
    token_ids: np.ndarray | None

    def requests(self, expert_ids: np.ndarray, weights: np.ndarray | None) -> list[Request]:
        """Return the samples as requests; `expert_ids` and `weights` are (samples, tokens, layers, top_k)."""
        found = []
        for number, real in enumerate(self.mask):
            if real.any():
                token_ids = None if self.token_ids is None else self.token_ids[number][real]
                own = None if weights is None else weights[number][real]
                found.append(
                    Request(f"sample {number}", expert_ids[number][real], token_ids=token_ids, expert_weights=own)
                )
        if not found:
            raise TraceError("the batch must hold at least one token that is not padding, found none")
        return found


def layers_first(tensors: Mapping[str, Tensor], name: str) -> bool:
    """Whether an array of four dimensions has (layers, samples, ..) in front, and not (samples, layers, ..).

    Raises:
        TraceError: Nothing in the file tells.
    """
    shape = tensors[name].shape
    counts = {tensors[column].shape[0] for column in COLUMNS if column in tensors and tensors[column].shape}
    first, second = (shape[axis] in counts for axis in (0, 1))
    if first == second and not (first and "sequence_lengths" in tensors):
        raise TraceError(
            f"array {name!r} of shape {shape} needs attention_mask, input_ids or sequence_lengths beside it, to tell "
            "samples from layers"
        )
    return not first


def batch_of(path: Path, tensors: Mapping[str, Tensor], rows: tuple[int, ...], options: ReadOptions) -> Batch:
    """Return which of `rows` are real tokens.

    Args:
        path: The file.
        tensors: What it holds.
        rows: (samples, tokens), or (samples * tokens,) as Hugging Face flattens them.
        options: Holds `max_bytes`.
    """
    columns: dict[str, np.ndarray] = {}
    for name, dimensions in COLUMNS.items():
        if name in tensors:
            columns[name] = load(path, name, tensors[name], options)
            if columns[name].ndim != dimensions or columns[name].dtype.kind not in "iub":
                found = f"{columns[name].dtype} of shape {columns[name].shape}"
                raise TraceError(f"array {name!r} must be whole numbers of {dimensions} dimensions, got {found}")
    shape = _shape(columns, rows)
    for name, column in columns.items():
        if column.shape != shape[: column.ndim]:
            raise TraceError(f"array {name!r} must be shaped {shape[: column.ndim]}, got {column.shape}")
    mask = np.ones(shape, dtype=bool)
    if "attention_mask" in columns:
        mask &= columns["attention_mask"] != 0
    if (lengths := columns.get("sequence_lengths")) is not None:
        if lengths.size and not 0 <= int(lengths.min()) <= int(lengths.max()) <= shape[1]:
            found = f"{lengths.min()} to {lengths.max()}"
            raise TraceError(f"array 'sequence_lengths' must be from 0 to {shape[1]}, got {found}")
        mask &= np.arange(shape[1]) < lengths[:, None]
    return Batch(mask, columns.get("input_ids"))


def _shape(columns: Mapping[str, np.ndarray], rows: tuple[int, ...]) -> tuple[int, ...]:
    if len(rows) == 2:
        return rows
    told = [column.shape for name, column in columns.items() if COLUMNS[name] == 2]
    if told:
        if math.prod(told[0]) != rows[0]:
            raise TraceError(f"the batch must hold samples times tokens of {told[0]}, got {rows[0]} rows")
        return told[0]
    samples = len(columns["sequence_lengths"]) if "sequence_lengths" in columns else 1
    if samples == 0 or rows[0] % samples:
        raise TraceError(f"the batch must hold the same rows for each of {samples} samples, got {rows[0]} rows")
    return samples, rows[0] // samples
