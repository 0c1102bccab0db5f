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
