"""SGLang expert distribution recorder `.pt`: per_token as a trace, per_pass and stat as counts; logical experts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.importers import torch_file
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.npy import ZIP_MAGIC, zip_members
from stickymoe.traces.importers.passes import Pass, trace_of_passes
from stickymoe.traces.importers.raw_ids import layer_names
from stickymoe.traces.profile import UsageProfile
from stickymoe.traces.trace import RoutingTrace

MAP = "last_physical_to_logical_map"
# Names in the pickle of either kind of file
MARKS = (b"logical_count", MAP.encode())
EXTEND, DECODE, MIXED = 1, 2, 3  # of SGLang's ForwardMode


def _matches(head: Head) -> bool:
    if not head.data.startswith(ZIP_MAGIC):
        return False
    pickles = zip_members(head.path, "/data.pkl", 2**20)
    return any(mark in data for data in pickles for mark in MARKS)


def _read(path: Path, options: ReadOptions) -> RoutingTrace | UsageProfile:
    payload = torch_file.load(path, options)
    if not isinstance(payload, dict) or not {"records", "logical_count"} & payload.keys():
        raise TraceError("the file must hold 'records' or 'logical_count', found neither")
    if "logical_count" in payload:
        counts = torch_file.array(payload["logical_count"], "logical_count", 3, options)
        return _profile(counts.sum(axis=0, dtype=np.int64), {"mode": "stat", "passes": len(counts)}, options)
    logical = torch_file.array(payload.get(MAP), MAP, 2, options)
    records = payload["records"]
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records) or not records:
        raise TraceError("records must be a list of at least one record, found none")
    if 0 in logical.shape or logical.min() < 0:
        raise TraceError(f"{MAP} must name a logical expert >= 0 for each physical one, got shape {logical.shape}")
    if "topk_ids_of_layer" in records[0]:
        return trace_of_passes(_passes(records, logical, options), int(logical.max()) + 1, options)
    return _pass_counts(records, logical, options)


def _passes(records: list[dict[str, Any]], logical: np.ndarray, options: ReadOptions) -> Iterator[Pass]:
    tokens, slots = 0, None
    for number, record in enumerate(records):
        name = f"record {number}"
        ids = torch_file.array(record.get("topk_ids_of_layer"), f"{name} topk_ids_of_layer", 3, options)
        slots = ids.shape[2] if slots is None else slots
        if ids.shape[2] != slots or slots == 0:
            raise TraceError(f"{name} must have the slots of record 0, {slots or '>= 1'}, got {ids.shape[2]}")
        tokens += ids.shape[1]
        options.require_room(4 * tokens * ids.shape[0] * ids.shape[2], f"{tokens} tokens")
        if not ids.shape[1]:
            continue
        mode = record.get("forward_mode")
        if mode not in (EXTEND, DECODE, MIXED) or type(mode) is not int:
            rule = f"must have forward_mode {EXTEND} (extend), {DECODE} (decode) or {MIXED} (mixed)"
            raise TraceError(f"{name} {rule}, got {mode!r:.40}; drafts are not laid out")
        yield Pass(
            name,
            _logical(ids, logical, name),
            _numbers(record, "positions", name, ids.shape[1]),
            _numbers(record, "input_ids", name, ids.shape[1]),
            [1] * ids.shape[1] if mode == DECODE else _lengths(record.get("extend_seq_lens"), ids.shape[1], name),
            {EXTEND: False, DECODE: True, MIXED: None}[mode],
        )


def _logical(ids: np.ndarray, logical: np.ndarray, name: str) -> np.ndarray:
    """Return (tokens, layers, k) of logical experts: a replica counts as the expert it copies."""
    if len(ids) != len(logical):
        raise TraceError(f"{name} must have the {len(logical)} layers of {MAP}, got {len(ids)}")
    if ids.min() < UNASSIGNED or ids.max() >= logical.shape[1]:
        outside = int(ids.min() if ids.min() < UNASSIGNED else ids.max())
        raise TraceError(f"{name} must name physical experts from 0 to {logical.shape[1] - 1} or -1, got {outside}")
    layers = np.arange(len(ids))[:, None, None]
    found = np.where(ids == UNASSIGNED, UNASSIGNED, logical[layers, np.maximum(ids, 0)])
    return found.transpose(1, 0, 2)


def _pass_counts(records: list[dict[str, Any]], logical: np.ndarray, options: ReadOptions) -> UsageProfile:
    physical = np.zeros(logical.shape, dtype=np.int64)
    for number, record in enumerate(records):
        name = f"record {number} global_physical_count"
        counts = torch_file.array(record.get("global_physical_count"), name, 2, options)
        if counts.shape != physical.shape:
            raise TraceError(f"{name} must have the shape of {MAP}, {physical.shape}, got {counts.shape}")
        if counts.min() < 0:
            raise TraceError(f"{name} must be >= 0, got {counts.min()}")
        physical += counts
    options.require_room(8 * len(logical) * (int(logical.max()) + 1), "counts of all logical experts")
    counts = np.zeros((len(logical), int(logical.max()) + 1), dtype=np.int64)
    np.add.at(counts, (np.arange(len(logical))[:, None], logical), physical)
    return _profile(counts, {"mode": "per_pass", "passes": len(records)}, options)


def _profile(counts: np.ndarray, provenance: dict[str, Any], options: ReadOptions) -> UsageProfile:
    options.experts(counts.shape[1], -1)
    used = np.flatnonzero(counts.any(axis=1))
    names = layer_names(used, len(counts)) if used.size else None
    return UsageProfile(counts[used] if used.size else counts, names, provenance | {"num_experts_from": "declared"})


def _numbers(record: dict[str, Any], key: str, name: str, count: int) -> np.ndarray:
    value = record.get(key)
    if not isinstance(value, list) or len(value) != count or set(map(type, value)) - {int}:
        raise TraceError(f"{name} {key} must be a list of {count} whole numbers, one a token, got {value!r:.60}")
    if count and not 0 <= min(value) <= max(value) < 2**62:
        raise TraceError(f"{name} {key} must be >= 0, got {min(value)} to {max(value)}")
    return np.array(value, dtype=np.int64)


def _lengths(value: Any, tokens: int, name: str) -> list[int]:
    fits = isinstance(value, list) and set(map(type, value)) <= {int}
    if not fits or min(value, default=0) < 0 or sum(value) != tokens:
        raise TraceError(f"{name} extend_seq_lens must be whole numbers that sum to {tokens} tokens, got {value!r:.60}")
    return [int(length) for length in value]


IMPORTER = Importer(
    name="sglang-recorder",
    what="SGLang expert distribution recorder .pt (needs torch): per_token a trace, per_pass and stat a usage profile",
    matches=_matches,
    read=_read,
    gives="trace or profile",
    loses="which copy of an expert served: physical experts become logical ones; not in the file: weights",
)
