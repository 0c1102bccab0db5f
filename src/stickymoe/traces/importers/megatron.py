"""Megatron-core's `--moe-routing-trace-path`: `router_trace_rank<r>.jsonl`, one record a step, block and layer."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of, warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.lines import blocks_of_lines
from stickymoe.traces.importers.numbers import numbers_in
from stickymoe.traces.importers.records import MAX_TOP_K
from stickymoe.traces.trace import RoutingTrace, same_array

FILE = re.compile(r"router_trace_rank(\d{1,9})\.jsonl")
KEY = b'"top_indices"'
# A row of k ids, and of rows the list; blanks are taken out before. Longer numbers are no ids
ROW = rb"\[\d{1,9}+(?:,\d{1,9}+){%d}+\]"
NUMBERS = ("step", "layer", "mtp_idx", "num_tokens", "topk")
LARGEST = 2**31
# A digit and its comma may become eight bytes of id, and the trace's own four
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
    heads: list[tuple[Any, ...]] = []
    ids: list[np.ndarray] = []
    rows: list[int] = []
    top_k = 0
    for first, block in blocks_of_lines(path):
        lists = []
        for number, line in enumerate(block.splitlines(), first):
            if not line.strip():
                continue
            place = f"{path.name}, line {number}"
            head, found = _parted(line, place)
            top_k = top_k or found.count(b",", 0, found.find(b"]")) + 1
            if top_k > MAX_TOP_K or _list_of(top_k).fullmatch(found) is None:
                rule = f"one list of {top_k} expert ids >= 0 a token, at most {MAX_TOP_K}, all alike"
                raise TraceError(
                    f"{place} must hold 'top_indices' as {rule}, got {found[:60].decode(errors='replace')!r}"
                )
            heads.append(_head(head, found.count(b"[") - 1, top_k, place))
            rows.append(found.count(b"[") - 1)
            lists.append(found)
        if lists:
            ids.append(numbers_in(b",".join(lists)).astype(np.int32).reshape(-1, top_k))
    if not heads:
        raise TraceError(f"{path.name} must hold at least one record, found none")
    keys = [key for _, key in heads]
    layers = tuple(sorted(set(keys), key=lambda key: (key[0] != "decoder", key)))
    code = {key: number for number, key in enumerate(layers)}
    steps = np.array([step for step, _ in heads], dtype=np.int64)
    return _Rank(layers, np.array([code[key] for key in keys]), steps, np.array(rows), np.concatenate(ids))


def _parted(line: bytes, place: str) -> tuple[dict[str, Any], bytes]:
    """Return a record without its ids, and the text of these without blanks: too many for Python objects."""
    start = line.find(b"[", line.find(KEY)) if KEY in line else -1
    stop = line.find(b"]]", start) + 2
    apart = start >= 0 and stop >= 2 and line[line.find(KEY) + len(KEY) : start].strip() == b":"
    try:
        head = json.loads(line[:start] + b"null" + line[stop:] if apart else line)
    except (ValueError, RecursionError) as error:
        found = f"{line[:40]!r}...; the file may be cut short"
        raise TraceError(f"{place} must be one JSON record, got {found}") from error
    if not isinstance(head, dict) or "top_indices" not in head:
        raise TraceError(f"{place} must be a JSON object with 'top_indices', found none")
    if apart and head["top_indices"] is None:
        return head, line[start:stop].translate(None, b" \t\r")
    return head, json.dumps(head["top_indices"], separators=(",", ":")).encode()


@cache
def _list_of(top_k: int) -> re.Pattern[bytes]:
    row = ROW % (top_k - 1)
    return re.compile(rb"\[%b(?:,%b)*+\]" % (row, row))


def _head(head: dict[str, Any], tokens: int, top_k: int, place: str) -> tuple[int, tuple[str, int, int]]:
    """Return a record's step, and its layer as (block, mtp_idx, layer)."""
    told = {"mtp_idx": -1, "num_tokens": tokens, "topk": top_k} | head
    block = told.get("block", "decoder")
    for name in NUMBERS:
        least = -1 if name == "mtp_idx" else 0
        if type(told.get(name)) is not int or not least <= told[name] < LARGEST:
            raise TraceError(f"{place} must have {name!r}, a whole number from 0 on, got {told.get(name)!r:.40}")
    if not isinstance(block, str) or not re.fullmatch(r"\w{1,32}", block):
        raise TraceError(f"{place} must have a block of letters, got {block!r:.40}")
    for name, found in (("num_tokens", tokens), ("topk", top_k)):
        if told[name] != found:
            raise TraceError(f"{place} must have its {name}, {told[name]}, in 'top_indices', got {found}")
    return told["step"], (block, told["mtp_idx"], told["layer"])


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
    needs="`num_experts`",
    loses="ranks that repeat another; not in the file: weights, which of the experts is the top-1",
)
