"""A part of a trace to try slow things on."""

from __future__ import annotations

import numpy as np

from stickymoe.traces import RoutingTrace


def first_part(trace: RoutingTrace, accesses: int) -> tuple[RoutingTrace, str]:
    """Return whole sequences from the front with at most so many lookups, and words for it; empty ones for the whole.

    A first sequence that is too long is cut.
    """
    tokens = max(1, accesses // (trace.num_layers * trace.top_k))
    if tokens >= trace.num_tokens:
        return trace, ""
    starts = trace.sequence_starts()
    whole = int(starts[np.searchsorted(starts, tokens, side="right") - 1])
    kept = whole or tokens
    return trace.head(kept), f", on the first {kept:,} tokens"
