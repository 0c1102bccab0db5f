"""JSON lines: a header, then a record a token and layer, token by token; keeps all but provenance and expert sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.traces.checks import PREFILL
from stickymoe.traces.exporters.exporter import Exporter, warn_of_loss
from stickymoe.traces.trace import RoutingTrace

BLOCK = 2**12
# Field of `RoutingTrace` -> its name in a record
TOKEN_FIELDS = {"token_ids": "token_id", "document_ids": "document_id", "event_ids": "event"}


def _write(trace: RoutingTrace, path: Path) -> None:
    if trace.expert_bytes is not None:
        warn_of_loss(EXPORTER.name, "the bytes of experts")
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(_header(trace)) + "\n")
        for lines in _blocks(trace):
            file.write("\n".join(lines) + "\n")


def _header(trace: RoutingTrace) -> dict[str, Any]:
    sizes = {"num_experts": trace.num_experts, "top_k": trace.top_k, "num_layers": trace.num_layers}
    model = trace.provenance.get("model")
    return {"type": "meta"} | sizes | ({"model": model} if isinstance(model, str) else {})


def _blocks(trace: RoutingTrace) -> Iterator[list[str]]:
    """Yield the records' lines, some thousand tokens at a time."""
    bounds = trace.sequence_starts().tolist()
    numbers = [
        int(name) if name.isascii() and name.isdigit() and str(int(name)) == name else name for name in trace.names
    ]
    layers = [json.dumps(each) for each in (numbers if all(isinstance(n, int) for n in numbers) else trace.names)]
    plain = np.arange(trace.num_tokens) - np.repeat(bounds[:-1], np.diff(bounds))
    moved = trace.positions is not None and not np.array_equal(trace.positions, plain)
    for sequence, (start, stop) in enumerate(pairwise(bounds)):
        for first in range(start, stop, BLOCK):
            rows = slice(first, min(first + BLOCK, stop))
            yield _lines(trace, rows, sequence, first - start, layers, moved)


def _lines(trace: RoutingTrace, rows: slice, sequence: int, token: int, layers: list[str], moved: bool) -> list[str]:
    """Return the lines of some tokens of a sequence, the first of which is its `token`-th."""
    named = {
        name: getattr(trace, field)[rows].tolist()
        for field, name in TOKEN_FIELDS.items()
        if getattr(trace, field) is not None
    }
    if moved:
        named["position"] = trace.positions[rows].tolist()  # type: ignore[index]
    if trace.phases is not None:
        named["phase"] = [f'"{"prefill" if phase == PREFILL else "decode"}"' for phase in trace.phases[rows].tolist()]
    ids = trace.expert_ids[rows]
    filled = (ids != -1).sum(axis=2).tolist()
    slots = {"experts": ids.tolist()}
    if trace.expert_weights is not None:
        # float32's own shortest digits, not those of the double that holds it
        slots["weights"] = trace.expert_weights[rows].astype(str).tolist()
    if trace.resident is not None:
        slots["cache_hit"] = trace.resident[rows].tolist()
    lines = []
    for row, counts in enumerate(filled):
        said = "".join(f', "{name}": {values[row]}' for name, values in named.items())
        head = f'{{"sequence": {sequence}, "token": {token + row}{said}, "layer": '
        for layer, count in enumerate(counts):
            lists = "".join(
                f', "{name}": [{", ".join(map(str, values[row][layer][:count]))}]' for name, values in slots.items()
            )
            lines.append(f"{head}{layers[layer]}{lists}}}")
    return lines


EXPORTER = Exporter(
    name="jsonl",
    what="JSON lines, a record a token and layer: sequence, token, layer, experts, weights, ...",
    suffix=".jsonl",
    write=_write,
)
