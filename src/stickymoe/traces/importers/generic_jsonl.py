"""Home-made JSON lines: a record a token and layer, under whatever names (`aliases`), in token or layer order."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.aliases import is_routing, resolve
from stickymoe.traces.importers.generic_records import Records
from stickymoe.traces.importers.generic_trace import trace_of
from stickymoe.traces.importers.generic_types import typed
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.lines import blocks_of_lines
from stickymoe.traces.trace import RoutingTrace

SAMPLE_BYTES = 2**16
# Read, and parsed by one thread, at a time; while the parsers work the rows of earlier blocks are put in place
BLOCK_BYTES = 2**23
PARSERS = 2
PARSED_BYTES = 2**20
BOM = b"\xef\xbb\xbf"
HEADS = 4
# pyarrow's parser dies, and the process with it, where the text it is given, or cuts out at line ends, begins so
NULL = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?[ \t]*null")


def _matches(head: Head) -> bool:
    for line in head.lines[:HEADS]:
        record = _record(line)
        if record is None:
            return False
        if is_routing(resolve(record)):
            return True
    return False


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    types = typed([record for line in _sample(path) if (record := _record(line)) is not None])
    schema = pa.schema([(name, kind) for name, kind in types.values()])
    records = Records(options, {what: name for what, (name, _) in types.items()})
    for table in _tables(path, schema):
        records.add(table.rename_columns(list(types)))
    return trace_of(records, options, IMPORTER.name)


def _record(line: str | bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _sample(path: Path) -> Iterator[bytes]:
    """Yield whole lines of the file's begin, middle and end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for start in sorted({0, max(0, (size - SAMPLE_BYTES) // 2), max(0, size - SAMPLE_BYTES)}):
            file.seek(start)
            lines = file.read(SAMPLE_BYTES).removeprefix(BOM).split(b"\n")
            yield from lines[1 if start else 0 : None if start + SAMPLE_BYTES >= size else -1]
            if start == 0 and len(lines) == 1 and size > SAMPLE_BYTES:
                file.seek(0)
                yield file.readline()


def _tables(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    with ThreadPoolExecutor(PARSERS) as parsers:
        pending: deque[Future[pa.Table]] = deque()
        for first, block in blocks_of_lines(path, BLOCK_BYTES):
            pending.append(parsers.submit(parsed, block, schema, first))
            if len(pending) > PARSERS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def parsed(block: bytes, schema: pa.Schema, first: int, unit: str = "line") -> pa.Table:
    """Return the records of a block of lines, the first of which is the file's `first`.

    Raises:
        TraceError: A line is no record of these types; the message names it.
    """
    try:
        return _arrow(block, schema)
    except (pa.ArrowException, ValueError):
        line, text, error = _first_bad(block, schema)
        found = " ".join(str(error).split()).removesuffix(" in row 0")
        place = f"{unit} {first + line}"
        raise TraceError(f"{place} must be a JSON record like the others, got {text!r}: {found}") from error


def _arrow(block: bytes, schema: pa.Schema) -> pa.Table:
    block = block.removeprefix(BOM)
    if not block or block.isspace():
        return schema.empty_table()
    if _may_begin_with_null(block) and NULL.search(block):
        raise ValueError("null is no record")
    try:
        return _read_json(block, schema, PARSED_BYTES)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        return _read_json(block, schema, len(block) + 1)  # a line is longer than what is parsed at a time


def _may_begin_with_null(block: bytes) -> bool:
    """Whether a line may begin with null, which the parser does not survive where it begins to read."""
    if b"null" not in block:
        return False
    flat = np.frombuffer(block, np.uint8)
    begins = np.flatnonzero(flat[:-1] == ord("\n")) + 1
    return b"\r" in block or block[:1] != b"{" or bool((flat[begins] != ord("{")).any())


def _read_json(block: bytes, schema: pa.Schema, parsed_bytes: int) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=parsed_bytes),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _first_bad(block: bytes, schema: pa.Schema) -> tuple[int, str, Exception]:
    """Return the number of the first line that does not parse, how it begins, and why."""
    lines = block.split(b"\n")
    low, high, why = 0, len(lines), Exception("unknown")
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _arrow(b"\n".join(lines[low:middle]), schema)
            low = middle
        except (pa.ArrowException, ValueError):
            high = middle
    try:
        _arrow(lines[low], schema)
    except (pa.ArrowException, ValueError) as error:
        why = error
    return low, lines[low][:40].decode(errors="replace"), why


IMPORTER = Importer(
    name="jsonl",
    what="JSON lines of (token, layer, experts) under many names: home-made dumps, moe-policylang, moe-cache-lab, MER",
    matches=_matches,
    read=_read,
    needs="`num_experts` where no header tells it; `prompt_tokens` where no phases are told",
    loses="fields under other names",
)
