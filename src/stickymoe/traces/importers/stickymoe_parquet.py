"""Our own trace files (docs/trace-format.md)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.reader import load_trace
from stickymoe.traces.schema import HEADER_KEY
from stickymoe.traces.trace import RoutingTrace

MAGIC = b"PAR1"


def _matches(head: Head) -> bool:
    if not head.data.startswith(MAGIC):
        return False
    try:
        return HEADER_KEY in (pq.read_schema(head.path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    trace = load_trace(path, max_bytes=options.max_bytes)
    options.experts(trace.num_experts, -1)
    return trace


IMPORTER = Importer(
    name="stickymoe", what="stickymoe's own Parquet trace files, docs/trace-format.md", matches=_matches, read=_read
)
