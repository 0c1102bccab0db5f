"""Batches taken apart into requests: compared with an engine that keeps a running batch and knows whose tokens run."""

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.passes import Pass, trace_of_passes

EXPERTS = 4


def one_pass(number, batch, decode):
    """Return a pass over (request, positions); token ids tell request and position, experts tell the token."""
    tokens = np.array([1000 * request + position for request, positions in batch for position in positions])
    ids = np.stack([tokens % EXPERTS, (tokens + 1) % EXPERTS], axis=1)[:, None]
    positions = np.array([position for _, positions in batch for position in positions])
    return Pass(f"record {number}", ids, positions, tokens, [len(positions) for _, positions in batch], decode)


@st.composite
def sessions(draw):
    """Draw what an engine does: prompts in chunks, decode passes over all that run, requests that end at any time."""
    running, passes, count = {}, [], 0
    for _ in range(draw(st.integers(1, 25))):
        if not running or draw(st.integers(0, 3)) == 0:
            lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
            batch = [(count + new, list(range(length))) for new, length in enumerate(lengths)]
            count += len(batch)
        else:
            batch = [(request, [position]) for request, position in running.items()]
        decode = len(batch[0][1]) == 1 and batch[0][0] in running
        passes.append((batch, decode))
        running.update({request: positions[-1] + 1 for request, positions in batch})
        for request in list(running):
            if draw(st.integers(0, 5)) == 0:
                del running[request]
    return passes


@settings(max_examples=150, deadline=None)
@given(sessions())
def test_every_token_goes_to_its_request_or_a_warning_is_given(session):
    session = [(one_pass(number, *each), each[1]) for number, each in enumerate(session)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = trace_of_passes([each for each, _ in session], EXPERTS, ReadOptions())
    assert trace.num_tokens == sum(len(each.positions) for each, _ in session)
    assert (trace.expert_ids[:, 0, 0] == trace.token_ids % EXPERTS).all()
    phases = {token: DECODE if decode else PREFILL for each, decode in session for token in each.token_ids.tolist()}
    assert trace.phases.tolist() == [phases[token] for token in trace.token_ids.tolist()]
    if caught:
        assert {warning.category for warning in caught} == {TraceWarning}
    else:
        assert (trace.sequence_ids == trace.token_ids // 1000).all()
        assert (trace.positions == trace.token_ids % 1000).all()
