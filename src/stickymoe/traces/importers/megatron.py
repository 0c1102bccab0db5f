"""Megatron-core's `--moe-routing-trace-path`: `router_trace_rank<r>.jsonl`, one record a step, block and layer."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of, warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.lines import blocks_of_lines
from stickymoe.traces.trace import RoutingTrace, same_array

FILE = re.compile(r"router_trace_rank(\d{1,9})\.jsonl")
NUMBERS = ("step", "layer", "rank", "num_tokens", "topk", "mtp_idx")
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in NUMBERS] + [("block", pa.string()), ("top_indices", pa.list_(pa.list_(pa.int32())))]
)
NEEDED = ("step", "layer", "top_indices")
MAX_LAYER = 2**20
# A digit and its comma may become four bytes of id, eight of list offset and the trace's own
GROWTH = 10
SORTED = "by number, not by weight: the writer reads them from a map of chosen experts, so slot 0 is not the top-1"


def _matches(head: Head) -> bool:
    if not head.data:
        return head.path.is_dir() and bool(_files(head.path))
    first = head.data.split(b"\n", 1)[0]
    return first.startswith(b"{") and all(b'"%s"' % key in first for key in (b"top_indices", b"layer", b"step"))


def _files(folder: Path) -> list[Path]:
    """Return the folder's traces by rank."""
    found = [(int(name[1]), path) for path in folder.iterdir() if (name := FILE.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    files = _files(path) if path.is_dir() else [path]
    if not files:
        raise TraceError("the folder must hold files router_trace_rank<r>.jsonl, found none")
    size = sum(file.stat().st_size for file in files)
    options.require_room(size * GROWTH, f"{len(files)} files of {size} bytes")
    ranks = _distinct([_rank(file) for file in files])
    stages = sorted({rank.layers for rank in ranks})
    if len(stages) == 1:
        return _data_parallel(ranks, options)
    shared = sum(map(len, stages)) != len({layer for stage in stages for layer in stage})
    if shared or len(stages) != len(ranks):
        found = f"{len(stages)} sets of layers in {len(ranks)} ranks"
        raise TraceError(f"ranks must all hold the same layers, or each its own, got {found}; read one file at a time")
    return _pipeline([_data_parallel([rank], options) for rank in sorted(ranks, key=lambda rank: rank.layers)], options)


def _data_parallel(ranks: list[_Rank], options: ReadOptions) -> RoutingTrace:
    """Ranks of the same layers are sequences."""
    if len({rank.expert_ids.shape[1] for rank in ranks}) > 1:
        raise TraceError("ranks must all have the same topk, got different ones")
    blocks = Blocks(
        np.concatenate([rank.codes for rank in ranks]),
        np.concatenate([rank.rows for rank in ranks]),
        np.concatenate([rank.expert_ids for rank in ranks]),
        restarts=np.concatenate([np.arange(len(rank.rows)) == 0 for rank in ranks]),
        begins=np.concatenate([np.diff(rank.steps, prepend=-1) != 0 for rank in ranks]),
    )
    require_told("top_k", options.top_k, blocks.expert_ids.shape[1])
    told: dict[str, Any] = {"ranks": len(ranks)}
    if blocks.expert_ids.shape[1] > 1 and (blocks.expert_ids[:, 1:] > blocks.expert_ids[:, :-1]).all():
        told["slot_order"] = SORTED
    return trace_of(blocks, options, format=IMPORTER.name, told=told, layer_names=[_name(*k) for k in ranks[0].layers])


def _pipeline(stages: list[RoutingTrace], options: ReadOptions) -> RoutingTrace:
    """Ranks that hold a stage of the layers each lie side by side: they saw the same tokens."""
    first = stages[0]
    for stage in stages[1:]:
        if stage.top_k != first.top_k or not same_array(stage.event_ids, first.event_ids):
            found = f"{stage.num_tokens} tokens x {stage.top_k} against {first.num_tokens} x {first.top_k}"
            raise TraceError(f"ranks of different layers must have seen the same tokens, got {found}")
    ids = np.concatenate([stage.expert_ids for stage in stages], axis=1)
    num_experts, source = options.experts(None, int(ids.max()))
    return RoutingTrace(
        ids,
        first.sequence_ids,
        num_experts,
        phases=first.phases,
        event_ids=first.event_ids,
        layer_names=tuple(name for stage in stages for name in stage.names),
        provenance=first.provenance | {"ranks": len(stages), "num_experts_from": source},
    )


@dataclass(frozen=True)
class _Rank:
    """One file: `layers` are (block, mtp_idx, layer), decoder first; `codes` and `steps` are of each record."""

    layers: tuple[tuple[str, int, int], ...]
    codes: np.ndarray
    steps: np.ndarray
    rows: np.ndarray
    expert_ids: np.ndarray


def _rank(path: Path) -> _Rank:
    tables, place = [], f"{path.name}, record"
    for line, block in blocks_of_lines(path):
        if block.strip():
            tables.append(_table(block, line, path.name))
    if not tables:
        raise TraceError(f"{path.name} must hold at least one record, found none")
    table = pa.concat_tables(tables).combine_chunks()
    for name in NEEDED:
        if table[name].null_count:
            number = table[name].is_null().to_numpy().argmax()
            raise TraceError(f"{place} {number} must have {name!r}, found none")
    keys = list(zip(_words(table["block"]), _numbers(table["mtp_idx"]), _numbers(table["layer"]), strict=True))
    rows, ids = _ids(table["top_indices"], place)
    for name, found in (("num_tokens", rows), ("topk", np.full(len(rows), ids.shape[1]))):
        declared = np.array(_numbers(table[name]))
        if (wrong := (declared != found) & (declared >= 0)).any():
            number = int(np.argmax(wrong))
            raise TraceError(f"{place} {number} must have its {name}, {declared[number]}, got {int(found[number])}")
    layers = tuple(sorted(set(keys), key=lambda key: (key[0] != "decoder", key)))
    for word, _, layer in layers:
        if not 0 <= layer < MAX_LAYER or not re.fullmatch(r"\w{1,32}", word):
            raise TraceError(f"{path.name} must have a block of letters and a layer >= 0, got {word!r:.40}, {layer}")
    code = {key: number for number, key in enumerate(layers)}
    return _Rank(layers, np.array([code[key] for key in keys]), np.array(_numbers(table["step"])), rows, ids)


def _table(block: bytes, line: int, name: str) -> Any:
    try:
        return pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(block_size=len(block) + 1, use_threads=False),
            parse_options=pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException as error:
        for number, text in enumerate(block.split(b"\n"), line):
            try:
                json.loads(text or b"{}")
            except (ValueError, RecursionError):
                found = f"{text[:40]!r}...; the file may be cut short"
                raise TraceError(f"{name}, line {number} must be one JSON record, got {found}") from error
        detail = " ".join(str(error).split())[:160]
        raise TraceError(f"{name}, the records from line {line} on must have the format's fields: {detail}") from error


def _numbers(column: Any) -> list[int]:
    filled: list[int] = column.fill_null(-1).to_pylist()
    return filled


def _words(column: Any) -> list[str]:
    filled: list[str] = column.fill_null("decoder").to_pylist()
    return filled


def _ids(column: Any, place: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of each record, and the ids of all."""
    tokens = pa.chunked_array([column.combine_chunks()]).chunk(0) if column.num_chunks != 1 else column.chunk(0)
    inner = tokens.flatten()
    flat = inner.flatten()
    if inner.null_count or flat.null_count:
        raise TraceError(f"{place}s must have whole numbers in 'top_indices', found a null")
    rows = tokens.value_lengths().to_numpy().astype(np.int64)
    widths = inner.value_lengths().to_numpy()
    if not rows.all():
        raise TraceError(f"{place} {int(np.argmin(rows))} must have at least one token, got none")
    if (other := widths != widths[0]).any() or widths[0] == 0:
        row = int(np.argmax(other))
        number = int(np.searchsorted(np.cumsum(rows), row, side="right"))
        found = f"{int(widths[row])} against {int(widths[0])} before"
        raise TraceError(f"{place} {number} must name as many experts a token as the others, at least one, got {found}")
    ids: np.ndarray = flat.to_numpy()
    return rows, ids.reshape(-1, int(widths[0]))


def _distinct(ranks: list[_Rank]) -> list[_Rank]:
    """Leave out ranks that repeat another to the last id: replicas record the same decision."""
    kept: dict[bytes, _Rank] = {}
    for rank in ranks:
        digest = hashlib.sha256(repr((rank.layers, rank.expert_ids.shape)).encode())
        for array in (rank.codes, rank.rows, rank.expert_ids):
            digest.update(np.ascontiguousarray(array).data)
        kept.setdefault(digest.digest(), rank)
    if len(kept) < len(ranks):
        warn(f"{len(ranks) - len(kept)} of {len(ranks)} ranks are left out: they repeat another to the last id")
    return list(kept.values())


def _name(block: str, mtp_idx: int, layer: int) -> str:
    if block == "decoder" and mtp_idx < 0:
        return str(layer)
    return f"{block}{mtp_idx if mtp_idx >= 0 else ''}.{layer}"


IMPORTER = Importer(
    name="megatron",
    what="Megatron-core's router_trace_rank*.jsonl, one file or their folder",
    matches=_matches,
    read=_read,
)
