"""imp's `diagnostics.moe_expert_trace`: JSON records `[layer, e0, e1, ...]`, or the same numbers in one flat list."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import integers, read_documents
from stickymoe.traces.trace import RoutingTrace

LISTS = ("trace", "entries", "data")
RECORD = re.compile(r"\[\s*([0-9]{1,6}(?:\s*,\s*[0-9]{1,9})+)\s*\]")
NAMED = re.compile(r'"(?:trace|entries|data)"\s*:\s*\[\s*(?:\[\s*)?[0-9]')


def _matches(head: Head) -> bool:
    """A list under a known name with `top_k`, or a bare list of records whose layers come round again."""
    text = head.data.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("{"):
        return NAMED.search(text) is not None
    if not re.match(r"\[\s*\[", text):
        return False
    records = [[int(number) for number in re.findall("[0-9]+", found[1])] for found in RECORD.finditer(text)]
    layers = [record[0] for record in records]
    widths = {len(record) for record in records[:-1] or records}
    if len(widths) != 1 or layers.count(layers[0]) < 2:
        return False
    period = layers.index(layers[0], 1)
    rounds = all(layer == layers[number % period] for number, layer in enumerate(layers))
    return rounds and layers[:period] == sorted(set(layers[:period]))


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    documents = list(read_documents(path, options))
    if len(documents) != 1:
        raise TraceError(f"must be one JSON document, got {len(documents)}")
    records, declared = _records(documents[0][1])
    if declared is not None and (type(declared) is not int or declared < 1):
        raise TraceError(f"top_k must be a whole number >= 1, got {declared!r}")
    table = _table(records, options.top_k if options.top_k is not None else declared)
    for given in (options.top_k, declared):
        require_told("top_k", given, table.shape[1] - 1)
    if int(table.min()) < 0 or int(table.max()) >= 2**31:
        row, column = np.argwhere((table < 0) | (table >= 2**31))[0].tolist()
        raise TraceError(f"record {row} must hold numbers from 0 to 2**31 - 1, got {int(table[row, column])}")
    ids = table[:, 1:].astype(np.int32)
    blocks = Blocks(table[:, 0], np.ones(len(table), dtype=np.int64), ids)
    return trace_of(blocks, options, format=IMPORTER.name)


def _records(document: Any) -> tuple[list[Any], Any]:
    if isinstance(document, dict):
        for name in LISTS:
            if isinstance(document.get(name), list):
                return document[name], document.get("top_k")
        raise TraceError(f"the JSON object must have a list under one of {', '.join(LISTS)}, found none")
    if not isinstance(document, list):
        raise TraceError(f"must be a JSON list of records, or an object with one, got {type(document).__name__}")
    return document, None


def _table(records: list[Any], top_k: int | None) -> np.ndarray:
    """Return (records, 1 + top_k): the layer, then its experts."""
    if not records:
        raise TraceError("must hold at least one record, found none")
    if isinstance(records[0], list):
        table = integers("records", records, 2)
        if table.shape[1] < 2:
            raise TraceError(f"record 0 must be a layer and its experts, got {table.shape[1]} numbers")
        return table
    if top_k is None:
        raise TraceError("top_k must be given: a flat list does not say how many numbers make a record")
    flat = integers("the flat list", records, 1)
    if len(flat) % (top_k + 1):
        number, over = divmod(len(flat), top_k + 1)
        raise TraceError(
            f"record {number} must be a layer and {top_k} experts, got {over} numbers; wrong top_k or cut?"
        )
    return flat.reshape(-1, top_k + 1)


IMPORTER = Importer(
    name="imp",
    what="imp's diagnostics.moe_expert_trace JSON ([layer, e0, e1, ...] or flat)",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `top_k` for a bare flat list",
    loses="not in the file: weights, prefill",
)
