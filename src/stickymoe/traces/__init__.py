"""Routing traces: which experts served which token, in memory, on disk and from other engines. Runs without torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stickymoe.traces.checks import DECODE, PREFILL
from stickymoe.traces.decode_order import in_decode_order
from stickymoe.traces.profile import UsageProfile, require_ordered
from stickymoe.traces.streams import Stream, streams
from stickymoe.traces.trace import RoutingTrace

if TYPE_CHECKING:
    from stickymoe.traces.exporters.registry import write_trace_as as write_trace_as
    from stickymoe.traces.importers.registry import read_trace as read_trace
    from stickymoe.traces.reader import TraceReader as TraceReader
    from stickymoe.traces.reader import open_trace as open_trace
    from stickymoe.traces.writer import TraceWriter as TraceWriter

__all__ = [
    "DECODE",
    "PREFILL",
    "RoutingTrace",
    "Stream",
    "TraceReader",
    "TraceWriter",
    "UsageProfile",
    "in_decode_order",
    "open_trace",
    "read_trace",
    "require_ordered",
    "streams",
    "write_trace_as",
]

# Loaded at first use: these bring pyarrow and every importer with them.
_FILE_OF = {
    "TraceReader": "reader",
    "TraceWriter": "writer",
    "open_trace": "reader",
    "read_trace": "importers.registry",
    "write_trace_as": "exporters.registry",
}


def __getattr__(name: str) -> Any:
    """Load a reader or writer of files at first use (PEP 562)."""
    if name not in _FILE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_FILE_OF[name]}"), name)
    return value
