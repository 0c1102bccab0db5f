"""Made-up traces for the tests of the cache: `st.from_type(RoutingTrace)` draws them."""

import numpy as np
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.traces import RoutingTrace

EXPERTS = 5


@st.composite
def traces(draw: st.DrawFn) -> RoutingTrace:
    """Draw a trace with all that a replay looks at: empty slots, phases, passes, weights and bytes."""
    tokens, layers, top_k = draw(st.integers(1, 15)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, EXPERTS)), axis=-1)[..., :top_k]
    filled = rng.integers(draw(st.sampled_from([0, top_k])), top_k + 1, (tokens, layers))
    filled[0, 0] = max(filled[0, 0], 1)
    ids[np.arange(top_k) >= filled[..., None]] = -1
    return RoutingTrace(
        ids,
        np.sort(rng.integers(0, 3, tokens)),
        EXPERTS,
        expert_weights=np.sort(rng.random(ids.shape), axis=-1)[..., ::-1],
        phases=rng.integers(0, 2, tokens),
        event_ids=np.cumsum(rng.integers(0, 2, tokens)) if draw(st.booleans()) else None,
        expert_bytes=rng.integers(1, 4, layers),
    )


st.register_type_strategy(RoutingTrace, traces())
