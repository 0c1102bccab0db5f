"""What `stickymoe trace` prints of a file, and the format it writes another in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.diagnosis.facts import facts_of
from stickymoe.traces import DECODE, RoutingTrace, UsageProfile


def describe_input(found: RoutingTrace | UsageProfile, name: str) -> dict[str, Any]:
    """Return what a file holds, by names that read well; None is not told by the file."""
    if isinstance(found, UsageProfile):
        return {
            "file": name,
            "kind": "usage profile: counts without order",
            "format": found.provenance.get("format"),
            "layers": found.num_layers,
            "layer_names": _names(found.names),
            "experts": found.num_experts,
            "uses": int(found.counts.sum()),
            "never_used": int(np.count_nonzero(found.counts == 0)),
        }
    facts = facts_of(found, name)
    sizes = facts.expert_bytes
    return {
        "file": name,
        "kind": "routing trace",
        "format": found.provenance.get("format", "stickymoe parquet"),
        "model": facts.model or None,
        "layers": facts.layers,
        "layer_names": _names(found.names),
        "experts": facts.num_experts,
        "experts_from": facts.num_experts_from or None,
        "top_k": facts.top_k,
        "tokens": facts.tokens,
        "prefill_tokens": facts.prefill_tokens,
        "decode_tokens": facts.decode_tokens,
        "sequences": facts.sequences,
        "forward_passes": None if found.event_ids is None else _passes(found),
        "lookups": facts.requests,
        "expert_bytes": None if sizes is None else _range(sizes),
        "weights": facts.has_weights,
        "residency": facts.has_resident,
        "token_ids": found.token_ids is not None,
        "positions": found.positions is not None,
    }


def listed_tokens(trace: RoutingTrace) -> Iterator[str]:
    """Yield one line a token and layer: sequence, token, phase, layer, experts with their weights."""
    phases = None if trace.phases is None else np.where(trace.phases == DECODE, "decode", "prefill").tolist()
    yield "sequence  token  phase    layer  experts"
    for token in range(trace.num_tokens):
        phase = "-" if phases is None else phases[token]
        for layer, label in enumerate(trace.names):
            ids = trace.expert_ids[token, layer]
            filled = int(np.count_nonzero(ids >= 0))
            words = [str(expert) for expert in ids[:filled].tolist()]
            if trace.expert_weights is not None:
                weights = trace.expert_weights[token, layer, :filled].tolist()
                words = [f"{word}:{weight:.4f}" for word, weight in zip(words, weights, strict=True)]
            experts = " ".join(words) or "-"
            yield f"{trace.sequence_ids[token]:>8}  {token:>5}  {phase:<7}  {label:>5}  {experts}"


def export_format(path: Path, asked: str | None) -> str:
    """Return the format to write: as asked for, else by the file's suffix.

    Raises:
        SettingError: No such format, or a suffix that says none.
    """
    from stickymoe.traces.exporters.registry import EXPORTERS

    if asked is not None:
        require_one_of("to", asked, EXPORTERS)
        return asked
    suffixes = {exporter.suffix: name for name, exporter in EXPORTERS.items()}
    if path.suffix.lower() not in suffixes:
        way_out = "give --to, one of " + ", ".join(sorted(EXPORTERS))
        raise SettingError.broken("the suffix of OUT", "one of " + ", ".join(suffixes), path.name, way_out)
    return suffixes[path.suffix.lower()]


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:3])}, .. {names[-1]}"


def _range(sizes: tuple[int, ...]) -> str:
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _passes(trace: RoutingTrace) -> int:
    assert trace.event_ids is not None
    pairs = np.stack([trace.sequence_ids, trace.event_ids], axis=1)
    return 1 + int(np.any(pairs[1:] != pairs[:-1], axis=1).sum())
