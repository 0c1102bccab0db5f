"""MoE-Infinity's collection of activations: npy (sequences, layers, experts), how often each sequence used each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.counts import profile_of
from stickymoe.traces.importers.forwards import warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.npy import MAGIC, npy_array, npy_shape
from stickymoe.traces.profile import UsageProfile

# Of all sequences together: what still adds up exactly in 64 bits
LARGEST = 2**62


def _matches(head: Head) -> bool:
    """Floating point, as the tracer keeps counts: whole numbers of three dimensions are rather vLLM's ids."""
    found = npy_shape(head.data) if head.data.startswith(MAGIC) else None
    return found is not None and len(found[0]) == 3 and found[1].kind == "f"


def _read(path: Path, options: ReadOptions) -> UsageProfile:
    """Which sequence used what is lost: the profile is of all together. The tracer's unused rows are zeros."""
    size = path.stat().st_size
    with path.open("rb") as file:
        counts = npy_array(file, size, "the array", options)
    if counts.ndim != 3 or 0 in counts.shape or counts.dtype.kind not in "iuf":
        rule = "the array must be numbers shaped (sequences, layers, experts) with at least one of each"
        raise TraceError(f"{rule}, got {counts.dtype} of shape {counts.shape}")
    wrong = ~((counts >= 0) & (counts < LARGEST / len(counts)))
    if wrong.any():
        sequence, layer, expert = np.argwhere(wrong)[0].tolist()
        place = f"sequence {sequence}, layer {layer}, expert {expert}"
        raise TraceError(f"{place} must have a count from 0 to below 2**62, got {counts[sequence, layer, expert]}")
    total = counts.sum(axis=0, dtype=np.float64 if counts.dtype.kind == "f" else np.int64)
    used = total.any(axis=1)
    if not used.any():
        raise TraceError("must count at least one use, found only zeros")
    if not used.all():
        warn(f"{int((~used).sum())} layers without any use are left out: layers without experts are written as such")
    by_layer = {layer: row for layer, row in enumerate(total) if used[layer]}
    told = {"sequences": int(counts.any(axis=(1, 2)).sum())}
    return profile_of(by_layer, options, format=IMPORTER.name, declared=True, told=told)


IMPORTER = Importer(
    name="moe-infinity",
    what="MoE-Infinity's npy (sequences, layers, experts): how often each expert was chosen",
    matches=_matches,
    read=_read,
    gives="profile",
    loses="which sequence used what; not in the file: order",
)
