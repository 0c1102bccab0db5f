"""npz as cacheable-by-design writes: `experts` (layers, tokens, k) and `meta`, JSON text; what else is known beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.traces.exporters.exporter import Exporter, warn_of_loss
from stickymoe.traces.trace import RoutingTrace

COLUMNS = ("sequence_ids", "token_ids", "document_ids", "positions", "phases", "event_ids")


def _write(trace: RoutingTrace, path: Path) -> None:
    for name, what in (("expert_bytes", "the bytes of experts"), ("resident", "what the device had resident")):
        if getattr(trace, name) is not None:
            warn_of_loss(EXPORTER.name, what)
    meta = {
        "model": trace.provenance.get("model"),
        "top_k": trace.top_k,
        "k": trace.top_k,
        "num_experts": trace.num_experts,
        "n_moe_layers": trace.num_layers,
        "layer_names": list(trace.names),
        "source": "stickymoe",
    }
    arrays: dict[str, Any] = {"experts": _by_layer(trace.expert_ids), "meta": np.array(json.dumps(meta))}
    if trace.expert_weights is not None:
        arrays["weights"] = _by_layer(trace.expert_weights)
    arrays |= {name: getattr(trace, name) for name in COLUMNS if getattr(trace, name) is not None}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _by_layer(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values.transpose(1, 0, 2))


EXPORTER = Exporter(
    name="npz",
    what="npz with `experts` (layers, tokens, k) and `meta`, as cacheable-by-design",
    suffix=".npz",
    write=_write,
)
