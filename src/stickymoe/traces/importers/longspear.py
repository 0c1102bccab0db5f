"""`LONGSPEAR_ROUTE_TRACE v1` of a llama.cpp fork: a line of ASCII, then u16 records: layer, rows, rows x top_k ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.forwards import Blocks, part, require_told, trace_of, warn
from stickymoe.traces.importers.importer import Importer, ReadOptions
from stickymoe.traces.importers.records import MAX_TOP_K, ids_between, record_starts
from stickymoe.traces.trace import RoutingTrace

MAGIC = b"LONGSPEAR_ROUTE_TRACE "
HEADER = 2
LONGEST_HEADER = 2**14
RECORD = "u16_layer,u16_n_rows,n_rows*top_k*u16_expert"


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    data = whole_bytes(path, options, growth=6)
    end = data.find(b"\n", 0, LONGEST_HEADER) + 1
    if end == 0:
        raise TraceError(f"must begin with a header line of at most {LONGEST_HEADER} bytes, found no end of it")
    facts = _header(data[:end])
    top_k, experts = _number(facts, "top_k", MAX_TOP_K), _number(facts, "experts", 2**16)
    layers, main_layers = _number(facts, "layers", 2**16), _number(facts, "main_layers", 2**16)
    require_told("top_k", options.top_k, top_k)
    if (len(data) - end) % 2:
        raise TraceError(
            f"must hold whole 16-bit numbers after its header, got {len(data) - end} bytes; it is cut short"
        )
    words = np.frombuffer(data, "<u2", offset=end)
    starts, _ = record_starts(words, HEADER, top_k, offset=end)
    blocks = Blocks(
        words[starts].astype(np.int64),
        words[starts + 1].astype(np.int64),
        ids_between(words, starts, HEADER, top_k).astype(np.int32),
    )
    if int(blocks.layers.max()) >= layers:
        number = int(np.argmax(blocks.layers >= layers))
        raise TraceError(f"record {number} must have a layer below the header's {layers}, got {blocks.layers[number]}")
    told: dict[str, str] = {name: facts[name] for name in ("model", "mode") if name in facts}
    return trace_of(_main(blocks, main_layers), options, format=IMPORTER.name, declared=experts, told=told)


def _header(line: bytes) -> dict[str, str]:
    try:
        words = line.decode("ascii").split()
    except UnicodeDecodeError as error:
        raise TraceError("must begin with a header line in ASCII, got other bytes in it") from error
    if words[:2] != ["LONGSPEAR_ROUTE_TRACE", "v1"]:
        raise TraceError(f"must be version v1 of the format, got {' '.join(words[:2])!r}")
    facts = dict(word.partition("=")[::2] for word in words[2:])
    for name, wanted in (("endian", "little"), ("record", RECORD)):
        if facts.get(name, wanted) != wanted:
            raise TraceError(f"the header's {name} must be {wanted}, got {facts[name]!r}")
    return facts


def _number(facts: dict[str, str], name: str, largest: int) -> int:
    told = facts.get(name, "")
    if not (told.isascii() and told.isdigit() and len(told) < 10 and 1 <= int(told) <= largest):
        raise TraceError(f"the header's {name} must be a whole number from 1 to {largest}, got {told!r}")
    return int(told)


def _main(blocks: Blocks, main_layers: int) -> Blocks:
    """Leave out the layers of the drafting heads (MTP): they run in passes of their own, on other tokens."""
    drafts = blocks.layers >= main_layers
    if not drafts.any():
        return blocks
    if drafts.all():
        raise TraceError(f"must hold records of the {main_layers} main layers, got only those of drafting heads")
    warn(f"{int(drafts.sum())} records of layers from {main_layers} on, the drafting heads, are left out")
    return part(blocks, ~drafts)


IMPORTER = Importer(
    name="longspear",
    what="LONGSPEAR_ROUTE_TRACE v1 of a llama.cpp fork",
    matches=lambda head: head.data.startswith(MAGIC),
    read=_read,
    loses="layers of drafting heads; not in the file: weights",
)
