"""moepager's `.mpt` traces, version 1: magic, a JSON header, records of u64 time, u32 token, u16 layer, u16 expert."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.forwards import phases_by_prompt, require_told
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.trace import RoutingTrace

MAGIC = b"MPTRACE\0"
FIXED = struct.Struct("<8sHHI")
RECORD = np.dtype([("time_ns", "<u8"), ("token", "<u4"), ("layer", "<u2"), ("expert", "<u2")])
VERSION, EXPERTS, PAGES = 1, 1, 2
TOLD = ("source", "model_file")


def _matches(head: Head) -> bool:
    return head.data.startswith(MAGIC)


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    data = whole_bytes(path, options, growth=5)
    header, start = _header(data)
    if (len(data) - start) % RECORD.itemsize or len(data) == start:
        number, over = divmod(len(data) - start, RECORD.itemsize)
        found = f"{over} of its bytes; cut it off with head -c {len(data) - over}" if over else "no record at all"
        raise TraceError(f"record {number} must have {RECORD.itemsize} bytes, found {found}")
    records = np.frombuffer(data, RECORD, offset=start)
    layers, experts, top_k = (_number(header, name) for name in ("n_layers", "n_experts", "top_k"))
    require_told("top_k", options.top_k, top_k)
    for name, limit in (("layer", layers), ("expert", experts)):
        if (outside := records[name] >= limit).any():
            number = int(np.argmax(outside))
            raise TraceError(
                f"record {number} must have a {name} below the header's {limit}, got {int(records[name][number])}"
            )
    ids, names = _placed(records, top_k, options)
    require_told("num_layers", options.num_layers, len(names))
    num_experts, source = options.experts(experts, int(ids.max()))
    sequence = np.zeros(len(ids), dtype=np.int64)
    told = {name: header[name] for name in TOLD if isinstance(header.get(name), str)}
    return RoutingTrace(
        ids,
        sequence,
        num_experts,
        layer_names=tuple(map(str, names.tolist())),
        phases=None if options.prompt_tokens is None else phases_by_prompt(sequence, options.prompt_tokens),
        provenance={"format": IMPORTER.name, "num_experts_from": source, **told},
    )


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    if len(data) < FIXED.size:
        raise TraceError(f"must have a header of {FIXED.size} bytes, found {len(data)}; the file is cut short")
    magic, version, kind, length = FIXED.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise TraceError(f"must be an MPTRACE file of version {VERSION}, got {magic!r} version {version}")
    if kind == PAGES:
        raise TraceError("must be a trace of experts (kind 1), got one of file pages (kind 2), which names no expert")
    if kind != EXPERTS:
        raise TraceError(f"must be a trace of kind {EXPERTS} (experts), got kind {kind}")
    if FIXED.size + length > len(data):
        raise TraceError(f"the JSON header must lie in the file, {length} bytes, found {len(data) - FIXED.size}")
    try:
        header = json.loads(data[FIXED.size : FIXED.size + length].rstrip(b"\0 "))
    except (ValueError, RecursionError) as error:
        raise TraceError("the header must be JSON, got other bytes") from error
    if not isinstance(header, dict):
        raise TraceError(f"the header must be a JSON object, got {type(header).__name__}")
    if header.get("observation") != "full":
        raise TraceError(
            f"the trace must observe every access ('full'), got observation {header.get('observation')!r}: with hits "
            "left out, a replay would be of another stream; record again in full"
        )
    return header, FIXED.size + length


def _number(header: dict[str, Any], name: str) -> int:
    told = header.get(name)
    if type(told) is not int or not 1 <= told <= 2**16:
        raise TraceError(f"the header's {name} must be a whole number from 1 to {2**16}, got {told!r}")
    return told


def _placed(records: np.ndarray, top_k: int, options: ReadOptions) -> tuple[np.ndarray, np.ndarray]:
    """Return ids as (tokens, layers, top_k) and the layers' numbers; ids keep the order they were asked for in."""
    names, layer = np.unique(records["layer"], return_inverse=True)
    tokens, token = np.unique(records["token"], return_inverse=True)
    falls = np.diff(records["token"].astype(np.int64)) < 0
    rises_again = np.flatnonzero(falls & (layer[1:] <= layer[:-1]))
    if rises_again.size:
        number = int(rises_again[0]) + 1
        raise TraceError(
            f"record {number} must not go back to an earlier token, got token {int(records['token'][number])} after "
            f"{int(records['token'][number - 1])}; several runs in one file? split it"
        )
    cells = len(tokens) * len(names)
    options.require_room(cells * top_k * 4, f"{len(tokens)} tokens x {len(names)} layers x {top_k}")
    cell = token * len(names) + layer
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(cells))
    slot = np.arange(len(cell)) - starts[cell[order]]
    if int(slot.max()) >= top_k:
        number = int(order[np.argmax(slot >= top_k)])
        found = f"one more for token {int(records['token'][number])}, layer {int(records['layer'][number])}"
        raise TraceError(f"record {number} must keep to {top_k} experts a token and layer, got {found}")
    ids = np.full((cells, top_k), UNASSIGNED, dtype=np.int32)
    ids[cell[order], slot] = records["expert"][order]
    return ids.reshape(len(tokens), len(names), top_k), names


IMPORTER = Importer(
    name="moepager",
    what="moepager's .mpt traces, version 1, observed in full",
    matches=_matches,
    read=_read,
    needs="`prompt_tokens`",
    loses="times of the accesses; not in the file: weights, phases",
)
