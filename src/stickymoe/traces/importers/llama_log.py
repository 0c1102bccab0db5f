"""Log lines of llama.cpp with `LLAMA_EXPERT_LOG=1` (moe-l2): `EXPERT|L<layer>|T<n>: [id, ...] [id, ...]`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of, warn
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.strided import refuse_flat_copy
from stickymoe.traces.trace import RoutingTrace

START = b"EXPERT|L"
LINE = re.compile(rb"EXPERT\|L(\d{1,6})\|T(\d{1,18}):((?: *\[ *\d{1,9}(?: *, *\d{1,9})* *\])+)\s*")
GROUP = re.compile(rb"\[([^\]]*)\]")
# Bytes of memory a byte of the log may take while its lines are told apart
GROWTH = 24


def _matches(head: Head) -> bool:
    return any(line.startswith(START) for line in head.data.splitlines()) and LINE.search(head.data) is not None


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    """Each bracket is one token's choice; T is how many tokens the pass had (or its number, in other builds)."""
    data = whole_bytes(path, options, GROWTH)
    layers: list[int] = []
    numbers: list[int] = []
    told: list[int] = []
    groups: list[list[bytes]] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        at = line.find(START)
        if at < 0:
            continue
        found = LINE.fullmatch(line, at)
        if found is None:
            rule = "EXPERT|L<layer>|T<n>: [id, ...]"
            raise TraceError(f"line {number} must read {rule}, got {line[at : at + 60]!r}; it may be cut short")
        layers.append(int(found[1]))
        told.append(int(found[2]))
        numbers.append(number)
        groups.append(GROUP.findall(found[3]))
    if not layers:
        raise TraceError("must hold lines that begin with EXPERT|L, found none")
    rows = np.array([len(each) for each in groups], dtype=np.int64)
    ids = _ids([group for each in groups for group in each], np.repeat(numbers, rows))
    require_told("top_k", options.top_k, ids.shape[1])
    refuse_flat_copy(ids, rows)
    blocks = Blocks(np.array(layers, dtype=np.int64), rows, ids, unit="line", numbers=np.array(numbers))
    claimed = np.array(told, dtype=np.int64)
    if ((claimed > rows) & (rows > 1)).any():
        warn(f"the log holds at most {int(rows.max())} tokens of a forward pass: the others of a prefill are missing")
    return trace_of(blocks, options, format=IMPORTER.name)


def _ids(groups: list[bytes], numbers: np.ndarray) -> np.ndarray:
    sizes = np.array([group.count(b",") + 1 for group in groups])
    if (other := sizes != sizes[0]).any():
        number = int(np.argmax(other))
        found = f"{int(sizes[number])} ids against {int(sizes[0])} before"
        raise TraceError(f"line {int(numbers[number])} must name as many experts a token as the others, got {found}")
    flat = np.array(b",".join(groups).replace(b" ", b"").split(b","), dtype="S9").astype(np.int64)
    return flat.reshape(len(groups), -1).astype(np.int32)


IMPORTER = Importer(
    name="llama-log",
    what="llama.cpp logs with lines EXPERT|L3|T1: [12, 40, 7]",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `chunk_tokens`",
    loses="the tokens of a prefill that the log leaves out; not in the file: weights, where a sequence ends",
)
