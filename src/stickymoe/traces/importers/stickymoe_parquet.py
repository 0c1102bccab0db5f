"""Our own trace files (docs/trace-format.md)."""

from __future__ import annotations

from pathlib import Path

from stickymoe.traces.importers.importer import Head, Importer, ReadOptions
from stickymoe.traces.importers.parquet_head import parquet_head
from stickymoe.traces.reader import load_trace
from stickymoe.traces.schema import HEADER_KEY
from stickymoe.traces.trace import RoutingTrace


def _matches(head: Head) -> bool:
    found = parquet_head(head)
    return found is not None and HEADER_KEY in found.keys


def _read(path: Path, options: ReadOptions) -> RoutingTrace:
    trace = load_trace(path, max_bytes=options.max_bytes)
    options.experts(trace.num_experts, -1)
    return trace


IMPORTER = Importer(
    name="stickymoe",
    what="stickymoe's own Parquet trace files, docs/trace-format.md",
    matches=_matches,
    read=_read,
    loses="nothing",
)
