"""colibri's `.coli_usage`: lines `layer expert count` below negative-layer headers; older ones; inkling's binary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.counts import LARGEST, by_layer_of, profile_of, require_below
from stickymoe.traces.importers.forwards import warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.profile import UsageProfile

MAGIC = b"IKU1"
VERSION = 1
ENGINES = ("glm_moe_dsa", "inkling", "olmoe", "kimi_k3", "deepseek_v4", "qwen38", "glm53")
SIZES, ENGINE = -1, -2
LINE = re.compile(r"(-?\d{1,9}) (\d{1,9}) (\d{1,10})")
COLUMNS = ("layer", "expert", "count")


def _matches(head: Head) -> bool:
    if head.data.startswith(MAGIC):
        return True
    lines = head.lines[:8]
    if not lines or not all(LINE.fullmatch(line) for line in lines):
        return False
    layers = [int(line.split()[0]) for line in head.lines if LINE.fullmatch(line)]
    return layers[0] == SIZES or layers == sorted(layers)


def _read(path: Path, options: ReadOptions) -> UsageProfile:
    data = whole_bytes(path, options, growth=12)
    return _binary(data, options) if data.startswith(MAGIC) else _text(data, options)


def _text(data: bytes, options: ReadOptions) -> UsageProfile:
    layers, experts, counts = _table(data)
    sizes, told = _headers(layers, experts, counts)
    used = layers >= 0
    if not used.any():
        raise TraceError("must count at least one use, found only headers")
    layers, experts, counts, lines = layers[used], experts[used], counts[used], np.flatnonzero(used) + 1
    # Layer n_layers is the head that drafts tokens (MTP)
    limits = (LARGEST, LARGEST) if sizes is None else (sizes[0] + 1, sizes[1])
    require_below((layers, experts, counts), limits, lines)
    width = None if sizes is None else sizes[1]
    by_layer = by_layer_of(layers, experts, counts, lines, options, width)
    return profile_of(by_layer, options, format=IMPORTER.name, declared=sizes is not None, told=told)


def _table(data: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    try:
        table = pc.read_csv(
            pa.BufferReader(data),
            read_options=pc.ReadOptions(column_names=COLUMNS, use_threads=False),
            parse_options=pc.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            convert_options=pc.ConvertOptions(
                column_types=dict.fromkeys(COLUMNS, pa.int64()), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowException as error:
        detail = re.sub(r"Row #", "line ", " ".join(str(error).split()))[:160]
        raise TraceError(f"every line must read <layer> <expert> <count>: {detail}") from error
    layers, experts, counts = (table[name].to_numpy() for name in COLUMNS)
    return layers, experts, counts


def _headers(
    layers: np.ndarray, experts: np.ndarray, counts: np.ndarray
) -> tuple[tuple[int, int] | None, dict[str, Any]]:
    """Return (layers, experts) where a header says so, and what else headers tell. Unknown ones are passed over."""
    sizes, told = None, dict[str, Any]()
    for line in np.flatnonzero(layers < 0)[:64].tolist():
        second, third = int(experts[line]), int(counts[line])
        if layers[line] == SIZES:
            if not (0 <= second < LARGEST and 1 <= third <= LARGEST):
                raise TraceError(f"line {line + 1} must declare layers and experts, got {second} and {third}")
            sizes = (second, third)
        elif layers[line] == ENGINE:
            if second > VERSION:
                raise TraceError(f"line {line + 1} must be of format version {VERSION}, got {second}")
            told["engine"] = next((name for name in ENGINES if _fnv1a(name) == third), f"unknown ({third})")
    return sizes, told


def _fnv1a(name: str) -> int:
    """The 32-bit FNV-1a hash, by which an engine signs its files."""
    digest = 2166136261
    for byte in name.encode():
        digest = (digest ^ byte) * 16777619 % 2**32
    return digest


def _binary(data: bytes, options: ReadOptions) -> UsageProfile:
    if len(data) < 12:
        raise TraceError(f"must have a header of 12 bytes, found {len(data)}; the file is cut short")
    layers, experts = np.frombuffer(data, "<u4", 2, 4).tolist()
    if len(data) - 12 != layers * experts * 4 or not layers or not experts:
        found = f"{len(data) - 12} for {layers} layers x {experts} experts"
        raise TraceError(f"must hold {layers * experts * 4} bytes of counts, got {found}; the file is cut or lies")
    counts = np.frombuffer(data, "<u4", offset=12).reshape(layers, experts).astype(np.int64)
    dense = ~counts.any(axis=1)
    if dense.all():
        raise TraceError("must count at least one use, found only zeros")
    if dense.any():
        warn(f"{int(dense.sum())} layers without any use are left out: layers without experts are written as such")
    by_layer = {layer: row for layer, row in enumerate(counts) if row.any()}
    return profile_of(by_layer, options, format=IMPORTER.name, declared=True, told={"engine": "inkling"})


IMPORTER = Importer(
    name="coli-usage",
    what="colibri's .coli_usage: how often each expert was chosen",
    matches=_matches,
    read=_read,
    gives="profile",
    needs="`num_experts` for a file without a header",
    loses="not in the file: order",
)
