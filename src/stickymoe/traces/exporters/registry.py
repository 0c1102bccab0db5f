"""The formats that can be written, by name: a new one is a file, a line here and a test that reads it back."""

from __future__ import annotations

from pathlib import Path

from stickymoe.core.errors import TraceError
from stickymoe.core.files import whole_file
from stickymoe.core.settings import require_one_of
from stickymoe.traces.exporters import colibri, jsonl, llama_csv, npz, stickymoe_parquet
from stickymoe.traces.exporters.exporter import Exporter
from stickymoe.traces.trace import RoutingTrace
from stickymoe.traces.writer import refusal

EXPORTERS: dict[str, Exporter] = {
    module.EXPORTER.name: module.EXPORTER
    for module in (
        stickymoe_parquet,
        jsonl,
        npz,
        llama_csv,
        colibri,
    )
}


def write_trace_as(trace: RoutingTrace, path: Path | str, format: str) -> None:
    """Write a trace in a format that others read, whole or not at all.

        write_trace_as(trace, "trace.npz", "npz")

    Args:
        trace: What to write.
        path: Where; what stood there is replaced.
        format: A name in `EXPORTERS`.

    Raises:
        SettingError: Unknown format.
        TraceError: The format has no way to say what the trace holds.
        StorageError: The disk or the path refuses the write; what stood there before still stands.
    """
    require_one_of("format", format, EXPORTERS)
    path = Path(path)
    try:
        with whole_file(path) as temporary:
            EXPORTERS[format].write(trace, temporary)
    except TraceError as error:
        raise TraceError(f"{path} cannot be written: {error}; the stickymoe format keeps everything") from error
    except OSError as error:
        raise refusal(path, error) from error
