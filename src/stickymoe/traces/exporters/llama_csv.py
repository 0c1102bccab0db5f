"""`layer,expert` CSV as llama.cpp's `llama-moe-trace` writes: one activation a line, layer by layer in each pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stickymoe.traces.exporters.exporter import Exporter, layer_numbers, passes, require_served, warn_of_loss
from stickymoe.traces.trace import RoutingTrace

HEADER = "layer,expert\n"


def _write(trace: RoutingTrace, path: Path) -> None:
    require_served(trace, EXPORTER.name, whole=True)
    layers = layer_numbers(trace, EXPORTER.name)
    warn_of_loss(EXPORTER.name, "weights, positions, the number of experts, or where a sequence begins")
    with path.open("w", encoding="ascii") as file:
        file.write(HEADER)
        for rows in passes(trace):
            ids = np.moveaxis(trace.expert_ids[rows], 1, 0).reshape(len(layers), -1).tolist()
            for layer, chosen in zip(layers, ids, strict=True):
                file.write("".join(f"{layer},{expert}\n" for expert in chosen))


EXPORTER = Exporter(
    name="llama-csv", what="layer,expert CSV as llama.cpp's llama-moe-trace writes", suffix=".csv", write=_write
)
