"""Forward passes out of blocks, layer by layer: against the slow way round, from tokens to blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces import DECODE, PREFILL


@pytest.fixture(scope="module")
def forwards():
    from stickymoe.traces.importers import forwards

    return forwards


def options(**told):
    from stickymoe.traces.importers.importer import ReadOptions

    return ReadOptions(**told)


def blocks_of(forwards, rows, **more):
    """Blocks out of (layer, list of tokens' ids)."""
    return forwards.Blocks(
        np.array([layer for layer, _ in rows]),
        np.array([len(ids) for _, ids in rows]),
        np.array([token for _, ids in rows for token in ids], dtype=np.int32),
        **more,
    )


@settings(deadline=None)
@given(
    tokens=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    layers=st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True).map(sorted),
    pruned=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_tokens_come_back_out_of_their_blocks(forwards, tokens, layers, pruned, seed):
    rng = np.random.default_rng(seed)
    wanted, rows = [], []
    for number, count in enumerate(tokens):
        ids = np.argsort(rng.random((count, len(layers), 7)), axis=-1)[..., :3]
        kept = count
        if pruned and len(layers) > 1 and count > 1:  # in between a last layer may be left out, at the end all but one
            kept = int(rng.integers(1 if number == len(tokens) - 1 else 0, count))
            ids[: count - kept, -1] = -1
        rows += [(layer, ids[count - (kept if at == len(layers) - 1 else count) :, at].tolist())
                 for at, layer in enumerate(layers) if at < len(layers) - 1 or kept]  # fmt: skip
        wanted.append(ids)
    if not any(layer == layers[-1] for layer, _ in rows):
        return
    trace = forwards.trace_of(blocks_of(forwards, rows), options(), format="x")
    assert trace.expert_ids.tolist() == np.concatenate(wanted).tolist()
    assert trace.layer_names == tuple(map(str, layers))
    assert trace.event_ids.tolist() == np.repeat(np.arange(len(tokens)), tokens).tolist()
    assert trace.phases.tolist() == np.repeat([PREFILL if n > 1 else DECODE for n in tokens], tokens).tolist()
    assert trace.num_sequences == 1


ROWS = [(0, [[1, 2], [3, 4]]), (1, [[5, 6], [7, 0]]), (0, [[1, 3]]), (1, [[2, 4]]), (0, [[4, 1]]), (1, [[1, 2]])]


def test_restarts_and_chunks_begin_sequences_and_prompts_are_counted_in_each(forwards):
    told = np.array([True, False, True, False, False, False])
    restarted = blocks_of(forwards, ROWS, restarts=told)
    trace = forwards.trace_of(restarted, options(prompt_tokens=1), format="x")
    assert trace.sequence_ids.tolist() == [0, 0, 1, 1]
    assert trace.phases.tolist() == [PREFILL, DECODE, PREFILL, DECODE]
    assert forwards.trace_of(restarted, options(chunk_tokens=1), format="x").sequence_ids.tolist() == [0, 1, 2, 3]


def test_a_pass_may_begin_where_the_file_says_so_though_its_layer_rises(forwards):
    rows = [(0, [[1, 2]]), (1, [[3, 4]])]
    with pytest.raises(TraceError, match="must have all 2 layers, got 1"):
        forwards.trace_of(blocks_of(forwards, [*rows[:1], *rows[1:], *rows], begins=np.array([1, 1, 1, 0], bool)),
                          options(), format="x")  # fmt: skip


def test_weights_travel_with_their_ids(forwards):
    weights = np.array([[0.2, 0.8], [0.6, 0.4]], dtype=np.float32)
    told = blocks_of(forwards, [(0, [[1, 2], [3, 4]]), (1, [[5, 6]])], weights=np.vstack([weights, [[0.5, 0.5]]]))
    trace = forwards.trace_of(told, options(), format="x")
    assert trace.expert_ids.tolist() == [[[2, 1], [-1, -1]], [[3, 4], [5, 6]]]
    np.testing.assert_allclose(trace.expert_weights, [[[0.8, 0.2], [0, 0]], [[0.6, 0.4], [0.5, 0.5]]], rtol=1e-6)


def test_a_sequence_that_ends_inside_the_last_cut_pass_leaves_the_others_whole(forwards):
    told = np.array([True, False, False, False, False, False, True])
    with pytest.warns(TraceWarning, match="from record 6 on"):
        trace = forwards.trace_of(blocks_of(forwards, [*ROWS, (0, [[1, 2]])], restarts=told), options(), format="x")
    assert trace.sequence_ids.tolist() == [0, 0, 0, 0]


def test_a_trace_too_large_for_the_memory_allowed_is_refused_before_it_is_made(forwards):
    with pytest.raises(TraceError, match="max_bytes 60"):
        forwards.trace_of(blocks_of(forwards, ROWS), options(max_bytes=60), format="x")
