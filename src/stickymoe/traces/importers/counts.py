"""Makes a `UsageProfile` of counts by layer, as files that hold no order have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.forwards import require_told
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.profile import UsageProfile

# What the largest share becomes where a file holds shares and no counts
SHARES_OF = 10**9
# Layers and experts are below it where a file does not say how many there are
LARGEST = 2**20
SCALED = f"shares, scaled so that the largest is {SHARES_OF}: uses cannot be told from them"


def profile_of(
    by_layer: Mapping[int, np.ndarray],
    options: ReadOptions,
    *,
    format: str,
    declared: bool,
    told: dict[str, Any] | None = None,
) -> UsageProfile:
    """Return the profile of counts by layer, in the mapping's order.

    Counts that are no whole numbers are shares or averages: they are scaled, and the provenance says so.

    Args:
        by_layer: One row of numbers >= 0 a layer, equally long.
        options: What the user knows.
        format: For the provenance.
        declared: Whether the rows' length is the number of experts, rather than the largest id with a use.
        told: More provenance.

    Raises:
        TraceError: Rows of different length, or a number that is negative, NaN or infinite.
    """
    widths = {len(row) for row in by_layer.values()}
    if len(widths) != 1:
        raise TraceError(f"every layer must count as many experts as the others, got {sorted(widths)[:4]}")
    require_told("num_layers", options.num_layers, len(by_layer))
    width = widths.pop()
    num_experts, source = options.experts(width if declared else None, width - 1)
    for layer, row in by_layer.items():
        wrong = ~(np.isfinite(row) & (row >= 0))
        if wrong.any():
            expert = int(np.argmax(wrong))
            raise TraceError(f"layer {layer}, expert {expert} must have a count >= 0, got {row[expert]}")
    options.require_room(len(by_layer) * num_experts * 8, f"{len(by_layer)} layers x {num_experts} experts")
    counts = np.stack(list(by_layer.values()))
    provenance = {"format": format, "num_experts_from": source, **(told or {})}
    if counts.dtype.kind == "f":
        if not (counts == np.floor(counts)).all() or float(counts.max()) >= 2.0**63:
            counts = np.rint(counts.astype(np.float64) / float(counts.max()) * SHARES_OF)
            provenance["counts_are"] = SCALED
        counts = counts.astype(np.int64)
    counts = np.pad(counts, [(0, 0), (0, num_experts - width)])
    return UsageProfile(counts, tuple(map(str, by_layer)), provenance)


def require_below(
    columns: tuple[np.ndarray, np.ndarray, np.ndarray], limits: tuple[int, int], lines: np.ndarray
) -> None:
    """Raise unless each line's layer and expert are from 0 to below the limits, and its count fits in 63 bits.

    Args:
        columns: Layer, expert and count of each use.
        limits: Of layer and expert.
        lines: The line of each use, for the error.
    """
    for name, values, limit in zip(("layer", "expert", "count"), columns, (*limits, 2**62), strict=True):
        if (wrong := (values < 0) | (values >= limit)).any():
            use = int(np.argmax(wrong))
            raise TraceError(f"line {int(lines[use])} must have {name} from 0 to {limit - 1}, got {int(values[use])}")


def by_layer_of(
    layers: np.ndarray,
    experts: np.ndarray,
    counts: np.ndarray,
    lines: np.ndarray,
    options: ReadOptions,
    width: int | None,
) -> dict[int, np.ndarray]:
    """Return counts by layer out of lines of layer, expert and count; layers without a line are not there.

    Args:
        layers: Of each line, within bounds.
        experts: Of each line, within bounds.
        counts: Of each line.
        lines: The number of each line, for errors.
        options: Holds `max_bytes`.
        width: Experts a layer; the largest and one if None.

    Raises:
        TraceError: A layer's expert stands there twice.
    """
    numbers, place = np.unique(layers, return_inverse=True)
    width = int(experts.max()) + 1 if width is None else width
    options.require_room(len(numbers) * width * 16, f"{len(numbers)} layers x {width} experts")
    cell = place * width + experts
    ordered = np.argsort(cell, kind="stable")
    if (twice := cell[ordered[1:]] == cell[ordered[:-1]]).any():
        line = int(lines[ordered[1:][twice].min()])
        raise TraceError(f"line {line} must not count an expert that was counted above; two files in one?")
    table = np.zeros(len(numbers) * width, dtype=np.int64)
    table[cell] = counts
    return dict(zip(numbers.tolist(), table.reshape(len(numbers), width), strict=True))
