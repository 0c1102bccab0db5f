"""The few measures that training reports, in one JSON-able dictionary."""

from collections.abc import Callable
from typing import Any

import numpy as np

from stickymoe.metrics.switching import chance_overlap, expert_overlap, set_switch_rate, switch_rate
from stickymoe.metrics.utilisation import load_spread, overlap_by_use, utilisation_entropy
from stickymoe.traces import RoutingTrace

# A measure that gives one number a layer joins the summary with one line here.
PER_LAYER: dict[str, Callable[[RoutingTrace], np.ndarray]] = {
    "switch_rate": switch_rate,
    "set_switch_rate": set_switch_rate,
    "expert_overlap": expert_overlap,
    "overlap_by_use": overlap_by_use,
    "utilisation_entropy": utilisation_entropy,
    "load_variation": lambda trace: load_spread(trace).variation,
    "load_busiest": lambda trace: load_spread(trace).busiest,
}


def summarise(trace: RoutingTrace) -> dict[str, Any]:
    """Measure a trace: per layer first, then the plain mean over layers.

    Returns:
        `{measure: {"mean": number, "per_layer": [numbers]}}` for every measure, beside `chance_overlap` and the sizes
        `tokens`, `sequences`, `layers`, `num_experts` and `top_k`.

    Raises:
        TraceError: No two tokens are neighbours.
    """
    summary: dict[str, Any] = {
        "tokens": trace.num_tokens,
        "sequences": trace.num_sequences,
        "layers": trace.num_layers,
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
        "chance_overlap": chance_overlap(trace),
    }
    for name, measure in PER_LAYER.items():
        values = measure(trace)
        summary[name] = {"mean": float(values.mean()), "per_layer": values.tolist()}
    return summary
