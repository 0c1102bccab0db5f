"""Home-made JSON documents: a list of records, or an object that holds one, such as moe-routing-atlas' activations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.aliases import is_routing, resolve
from stickymoe.traces.importers.generic_jsonl import parsed
from stickymoe.traces.importers.generic_records import Records
from stickymoe.traces.importers.generic_trace import trace_of
from stickymoe.traces.importers.generic_types import typed
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.json_text import read_documents
from stickymoe.traces.trace import RoutingTrace

# An object without objects in it
RECORD = re.compile(r"\{[^{}]{1,4096}\}")
HEADS = 4
BLOCK_RECORDS = 2**15
SAMPLE_RECORDS = 400


def _matches(head: Head) -> bool:
    text = (head.text or _cut_text(head)).lstrip()
    if text[:1] not in ("[", "{"):
        return False
    for _, found in zip(range(HEADS), RECORD.finditer(text), strict=False):
        try:
            record = json.loads(found[0])
        except (ValueError, RecursionError):
            return False
        if is_routing(resolve(record)):
            return True
    return False


def _cut_text(head: Head) -> str:
    """Return the head of a document that is one long line."""
    return "" if b"\0" in head.data else head.data.decode("utf-8", errors="ignore")


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    documents = [document for _, document in read_documents(path, options)]
    if len(documents) != 1:
        raise TraceError(f"must be one JSON document, got {len(documents)}; one a line is the jsonl format")
    found = _listed(documents[0])
    types = typed(found[:SAMPLE_RECORDS] + found[-SAMPLE_RECORDS:])
    schema = pa.schema([(name, kind) for name, kind in types.values()])
    records = Records(options, {what: name for what, (name, _) in types.items()})
    for start in range(0, len(found), BLOCK_RECORDS):
        lines = "\n".join(map(json.dumps, found[start : start + BLOCK_RECORDS])).encode()
        records.add(parsed(lines, schema, start + 1, "record").rename_columns(list(types)))
    return trace_of(records, options, IMPORTER.name)


def _listed(document: Any) -> list[dict[str, Any]]:
    """Return a document's records; what stands beside them is a header before them.

    Raises:
        TraceError: There is no list of records, or more than one.
    """
    if isinstance(document, list):
        document = {"records": document}
    if not isinstance(document, dict):
        raise TraceError(f"must be a list of records or an object that holds one, got {type(document).__name__}")
    lists = {name: value for name, value in document.items() if _is_records(value)}
    if len(lists) != 1:
        raise TraceError(f"must hold one list of records of routing, got {', '.join(lists) or 'none'}")
    name, records = lists.popitem()
    header = {key: value for key, value in document.items() if key != name and isinstance(value, int | str)}
    told = resolve(header)
    declares = any(what in told for what in ("num_experts", "num_layers", "model"))
    return [header, *records] if declares and not is_routing(told) else records


def _is_records(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(record, dict) for record in value)
        and any(is_routing(resolve(record)) for record in value[:HEADS])
    )


IMPORTER = Importer(
    name="json",
    what="JSON with a list of (token, layer, experts) records under many names, such as moe-routing-atlas'",
    matches=_matches,
    read=_read,
    needs="`num_experts` where no header tells it; `prompt_tokens` where no phases are told",
    loses="fields under other names",
)
