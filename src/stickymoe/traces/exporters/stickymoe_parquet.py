"""Our own trace files, which keep everything."""

from __future__ import annotations

from stickymoe.traces.exporters.exporter import Exporter
from stickymoe.traces.writer import save_trace

EXPORTER = Exporter(
    name="stickymoe",
    what="stickymoe's own Parquet trace files, which keep everything",
    suffix=".parquet",
    write=save_trace,
)
