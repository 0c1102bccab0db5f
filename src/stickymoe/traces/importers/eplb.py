"""The load that DeepSeek's EPLB balances: `weight` (layers, logical experts), as npy, safetensors or JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.counts import profile_of
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import read_documents
from stickymoe.traces.importers.npy import MAGIC, npy_array, npy_shape
from stickymoe.traces.profile import UsageProfile

NAMES = ("weight", "weights", "logical_count", "logical_counts", "expert_load", "counts")
NAMED = re.compile(r'\{\s*"(?:' + "|".join(NAMES) + r')"\s*:\s*\[\s*\[\s*-?[\d.]')
NESTED = re.compile(r'\{\s*"\d{1,6}"\s*:\s*\{\s*"\d{1,6}"\s*:\s*-?[\d.]')
BARE = re.compile(r"\[\s*\[\s*-?[\d.][-+\d.eE,\s]*[\],]")
LONGEST_HEADER = 100_000_000


def _matches(head: Head) -> bool:
    if head.data.startswith(MAGIC):
        found = npy_shape(head.data)
        return found is not None and len(found[0]) == 2 and found[1].kind in "iuf"
    if _has_safetensors_header(head.data, head.size):
        return any(f'"{name}":{{' in head.data.decode("utf-8", errors="replace").replace(" ", "") for name in NAMES)
    text = head.data.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    return any(pattern.match(text) for pattern in (NAMED, NESTED, BARE))


def _has_safetensors_header(data: bytes, size: int) -> bool:
    length = int.from_bytes(data[:8], "little")
    return len(data) > 9 and data[8:9] == b"{" and 2 <= length <= min(size - 8, LONGEST_HEADER)


def _read(path: Path, options: ReadOptions) -> UsageProfile:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(9)
        file.seek(0)
        if start.startswith(MAGIC):
            table = npy_array(file, size, "the array", options)
        elif _has_safetensors_header(start + b" ", size):
            table = _safetensors(path, options)
        else:
            table = _json(path, options)
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iuf":
        rule = "the weight must be shaped (layers, logical experts), numbers, at least one of each"
        raise TraceError(f"{rule}, got shape {table.shape} of {table.dtype}")
    return profile_of(dict(enumerate(table)), options, format=IMPORTER.name, declared=True)


def _safetensors(path: Path, options: ReadOptions) -> np.ndarray:
    try:
        with safe_open(path, framework="np") as file:
            present = [name for name in NAMES if name in file.keys()]  # noqa: SIM118 (the file is no mapping)
            if not present:
                raise TraceError(f"must hold a tensor named one of {', '.join(NAMES)}, found none of them")
            shape = file.get_slice(present[0]).get_shape()
            options.require_room(8 * int(np.prod(shape, dtype=object)), f"tensor {present[0]!r} of shape {shape}")
            table: np.ndarray = file.get_tensor(present[0])
            return table
    except (SafetensorError, TypeError) as error:
        raise TraceError(f"must be a readable safetensors file, got: {' '.join(str(error).split())[:160]}") from error


def _json(path: Path, options: ReadOptions) -> np.ndarray:
    documents = list(read_documents(path, options))
    if len(documents) != 1:
        raise TraceError(f"must be one JSON document, got {len(documents)}")
    table = documents[0][1]
    if isinstance(table, dict):
        named = [table[name] for name in NAMES if name in table]
        table = named[0] if named else _from_nested(table, options)
    if not isinstance(table, list) or not table or not all(isinstance(row, list) for row in table):
        rule = f"must be a list of one list a layer, an object with one under {', '.join(NAMES)}"
        raise TraceError(f"{rule}, or {{layer: {{expert: count}}}}, got {json.dumps(documents[0][1])[:40]}")
    for layer, row in enumerate(table):
        if len(row) != len(table[0]):
            raise TraceError(f"layer {layer} must have as many experts as layer 0, {len(table[0])}, got {len(row)}")
        if wrong := [value for value in row if type(value) not in (int, float)]:
            raise TraceError(f"layer {layer} must hold numbers, got {wrong[0]!r:.40}")
    if max((abs(value) for row in table for value in row), default=0) >= 2**63:
        raise TraceError("the weight must fit in 64 bits, got a larger number")
    return np.array(table)


def _from_nested(nested: dict[str, Any], options: ReadOptions) -> list[list[Any]]:
    """Return {layer: {expert: count}} as a table; layers from 0 on without a gap, experts left out were not used."""
    width = 0
    for layer, row in nested.items():
        if not isinstance(row, dict) or not all(re.fullmatch(r"\d{1,6}", key) for key in (layer, *row)):
            raise TraceError(f"layer {layer!r:.40} must map expert numbers to counts, got {json.dumps(row)[:40]}")
        width = max(width, 1 + max(map(int, row), default=-1))
    options.require_room(len(nested) * width * 16, f"{len(nested)} layers x {width} experts")
    if sorted(map(int, nested)) != list(range(len(nested))):
        raise TraceError(f"layers must be numbered from 0 on without a gap, got {', '.join(nested)[:60]}")
    table = [[0] * width for _ in nested]
    for layer, row in nested.items():
        for expert, count in row.items():
            table[int(layer)][int(expert)] = count
    return table


IMPORTER = Importer(
    name="eplb",
    what="EPLB weight (layers, logical experts) as npy, safetensors or JSON",
    matches=_matches,
    read=_read,
    gives="profile",
    loses="not in the file: order, and uses where it holds shares",
)
