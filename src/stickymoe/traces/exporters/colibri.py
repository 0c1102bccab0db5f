"""`ROUTE_TRACE` text as the colibri engines write: `<call> <row> <layer> <id>:<gate> ...`, layer by layer in a pass."""

from __future__ import annotations

from pathlib import Path

from stickymoe.core.errors import TraceError
from stickymoe.traces.checks import UNASSIGNED
from stickymoe.traces.exporters.exporter import Exporter, layer_numbers, passes, require_served, warn_of_loss
from stickymoe.traces.trace import RoutingTrace


def _write(trace: RoutingTrace, path: Path) -> None:
    if trace.expert_weights is None:
        raise TraceError("colibri files must hold a gate for every expert, got a trace without weights")
    require_served(trace, EXPORTER.name, whole=False)
    layers = layer_numbers(trace, EXPORTER.name)
    warn_of_loss(EXPORTER.name, "gates beyond four places, the number of experts, or where a sequence begins")
    call = 0
    with path.open("w", encoding="ascii") as file:
        for rows in passes(trace):
            ids, gates = trace.expert_ids[rows].tolist(), trace.expert_weights[rows].tolist()
            for number, layer in enumerate(layers):
                for row in range(len(ids)):
                    pairs = zip(ids[row][number], gates[row][number], strict=True)
                    chosen = " ".join(f"{expert}:{gate:.4f}" for expert, gate in pairs if expert != UNASSIGNED)
                    file.write(f"{call} {row} {layer} {chosen}\n")
                call += 1


EXPORTER = Exporter(name="colibri", what="ROUTE_TRACE text as the colibri engines write", suffix=".txt", write=_write)
