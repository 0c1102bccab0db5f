"""A trace of layers that share their experts, as one token after the other asks for them while decoding."""

from __future__ import annotations

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.trace import RoutingTrace


def in_decode_order(trace: RoutingTrace, layers_per_pool: int) -> RoutingTrace:
    """Put the layers of a shared pool one after the other, so that a replay counts their experts once.

        row (t, l) of pool p  =  what layer p * K + l asked for at token t        tokens x layers -> tokens * K x pools

    The pool's requests come in the order of decoding: token t through layers 0 .. K-1, then token t+1. Replayed with a
    cache a layer, each pool has one cache; the same expert in the next layer is a hit. Rows are no tokens any more, so
    switch rates of the result compare layers; positions, events and what the device saw are left out.

    Args:
        trace: What was routed.
        layers_per_pool: K, how many adjacent layers draw on one pool; 1 returns the trace as it is.

    Raises:
        TraceError: K does not divide the layers, or experts of one pool have different sizes.

    Source: Sticky Routing, eq. 22 and appendix D.2.
    """
    if layers_per_pool < 1 or trace.num_layers % layers_per_pool:
        rule = f"layers_per_pool must divide the trace's {trace.num_layers} layers"
        raise TraceError(f"{rule}, got {layers_per_pool}")
    if layers_per_pool == 1:
        return trace
    pools = trace.num_layers // layers_per_pool
    sizes = trace.expert_bytes
    if sizes is not None:
        by_pool = sizes.reshape(pools, layers_per_pool)
        if (by_pool != by_pool[:, :1]).any():
            raise TraceError(f"experts of one pool must be of one size, got {sizes.tolist()} bytes by layer")
        sizes = by_pool[:, 0]

    def rows(of_tokens: np.ndarray | None) -> np.ndarray | None:
        return None if of_tokens is None else np.repeat(of_tokens, layers_per_pool)

    def unfold(slots: np.ndarray | None) -> np.ndarray | None:
        if slots is None:
            return None
        by_pool = slots.reshape(trace.num_tokens, pools, layers_per_pool, trace.top_k)
        return np.ascontiguousarray(by_pool.swapaxes(1, 2)).reshape(-1, pools, trace.top_k)

    ids, sequences = unfold(trace.expert_ids), rows(trace.sequence_ids)
    assert ids is not None
    assert sequences is not None
    names = trace.layer_names
    return RoutingTrace(
        expert_ids=ids,
        sequence_ids=sequences,
        num_experts=trace.num_experts,
        expert_weights=unfold(trace.expert_weights),
        token_ids=rows(trace.token_ids),
        document_ids=rows(trace.document_ids),
        phases=rows(trace.phases),
        layer_names=None if names is None else tuple(names[layer] for layer in range(0, len(names), layers_per_pool)),
        expert_bytes=sizes,
        provenance={**trace.provenance, "decode_order": {"layers_per_pool": layers_per_pool}},
    )
