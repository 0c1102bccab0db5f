"""Binary records of llama.cpp's `llama-moe-trace`: i4 layer, n_tokens, k, n_tokens x k ids; one a layer and chunk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.bounded import whole_bytes
from stickymoe.traces.importers.forwards import Blocks, require_told, trace_of
from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.records import MAX_LAYER, MAX_TOP_K, ids_between, record_starts
from stickymoe.traces.importers.strided import refuse_flat_copy
from stickymoe.traces.trace import RoutingTrace

HEADER = 3
SEQUENCES = "a record of several tokens starts one, as the writer clears the context at each chunk"


def _matches(head: Head) -> bool:
    """There is no magic number: the first records must fit their own headers."""
    words = np.frombuffer(head.data[: len(head.data) // 4 * 4], "<i4")
    at = records = 0
    while at + HEADER <= len(words) and records < 4:
        layer, tokens, top_k = words[at : at + HEADER].tolist()
        if not (0 <= layer < MAX_LAYER and tokens >= 1 and 1 <= top_k <= MAX_TOP_K):
            return False
        ids = words[at + HEADER : at + HEADER + tokens * top_k]
        if (at + HEADER + tokens * top_k) * 4 > head.size or (ids.size and not 0 <= ids.min() <= ids.max() < 2**16):
            return False
        at, records = at + HEADER + tokens * top_k, records + 1
    return records > 0


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    data = whole_bytes(path, options, growth=4)
    if len(data) % 4:
        raise TraceError(f"must hold whole 32-bit numbers, got {len(data)} bytes; the file is cut short")
    words = np.frombuffer(data, "<i4")
    starts, top_k = record_starts(words, HEADER)
    require_told("top_k", options.top_k, top_k)
    rows = words[starts + 1].astype(np.int64)
    blocks = Blocks(words[starts].astype(np.int64), rows, ids_between(words, starts, HEADER, top_k))
    refuse_flat_copy(blocks.expert_ids, rows)
    told = {"sequences_from": SEQUENCES}
    return trace_of(blocks, options, format=IMPORTER.name, clears_at_prefill=True, told=told)


IMPORTER = Importer(
    name="llama-records",
    what="binary records of llama.cpp's llama-moe-trace (i4 layer, n_tokens, k, ids)",
    matches=_matches,
    read=_read,
    needs="`num_experts`; `chunk_tokens`",
    loses="not in the file: weights, where a sequence ends (a record of several tokens begins one)",
)
