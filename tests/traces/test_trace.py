"""What a trace keeps, what it refuses, and in which words."""

import subprocess
import sys

import numpy as np
import pytest

from stickymoe.core.errors import TraceError
from stickymoe.traces import RoutingTrace

TWO_SEQUENCES = [[[[0, 1], [2, 3]], [[1, 0], [3, 2]]], [[[3, 0], [1, 2]]]]


def trace_of(ids, **columns) -> RoutingTrace:
    ids = np.asarray(ids)
    columns.setdefault("sequence_ids", np.zeros(len(ids), dtype=int))
    columns.setdefault("num_experts", 4)
    return RoutingTrace(expert_ids=ids, **columns)


def test_nested_lists_and_arrays_make_the_same_trace():
    from_lists = RoutingTrace.from_sequences(TWO_SEQUENCES, num_experts=4)
    from_arrays = RoutingTrace.from_sequences(
        [np.array(s, dtype=np.uint8) for s in TWO_SEQUENCES], num_experts=np.int64(4)
    )
    assert from_lists == from_arrays
    assert (from_lists.num_tokens, from_lists.num_layers, from_lists.top_k, from_lists.num_sequences) == (3, 2, 2, 2)
    assert [s.tolist() for s in from_lists.sequences()] == TWO_SEQUENCES
    assert from_lists.sequence_starts().tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("num_experts", "kind"), [(4, "int16"), (2**15, "int16"), (2**15 + 1, "int32"), (2**31, "int32")]
)
def test_ids_are_kept_in_the_smaller_type_that_holds_them(num_experts, kind):
    trace = trace_of([[[num_experts - 1, 0]]], num_experts=num_experts)
    assert trace.expert_ids.dtype == kind
    assert trace.expert_ids.tolist() == [[[num_experts - 1, 0]]]


def test_a_trace_cannot_be_written_to_through_its_arrays():
    trace = RoutingTrace.from_sequences(TWO_SEQUENCES, num_experts=4)
    with pytest.raises(ValueError, match="read-only"):
        trace.expert_ids[0, 0, 0] = 3


def test_traces_differ_where_any_part_differs():
    ids = [[[0, 1]], [[1, 0]]]
    weights = np.array([[[0.6, 0.4]], [[0.7, 0.3]]], dtype=np.float32)
    plain = trace_of(ids)
    assert plain == trace_of(ids)
    assert plain != trace_of([[[0, 1]], [[0, 1]]])
    assert plain != trace_of(ids, num_experts=5)
    assert plain != trace_of(ids, sequence_ids=[0, 1])
    assert plain != trace_of(ids, token_ids=[7, 8])
    assert plain != trace_of(ids, expert_weights=weights)
    assert plain != trace_of(ids, provenance={"model": "x"})
    assert plain != ids


def test_pairs_lie_within_one_sequence_and_document_and_beside_no_masked_token():
    ids = np.zeros((7, 1, 1), dtype=int)
    trace = trace_of(
        ids, sequence_ids=[0, 0, 0, 0, 1, 1, 1], document_ids=[0, 0, 1, 1, 1, 1, 1], positions=[0, 1, 2, 3, 0, 2, 3]
    )
    assert trace.valid_pairs().tolist() == [True, False, True, False, False, True]
    assert trace_of(ids).valid_pairs().all()


def test_provenance_is_kept_as_json_gives_it_back():
    assert trace_of([[[0]]], provenance={"sizes": (1, 2)}).provenance == {"sizes": [1, 2]}


@pytest.mark.parametrize(
    ("ids", "columns", "words"),
    [
        ([[[0.0, 1.0]]], {}, "whole numbers, got values of type float64"),
        ([[[float("nan"), 1.0]]], {}, "whole numbers"),
        ([[[True, False]]], {}, "whole numbers, got values of type bool"),
        (np.array([[["a", "b"]]]), {}, "whole numbers"),
        ([[0, 1]], {}, "shape"),
        (np.zeros((0, 2, 2), dtype=int), {}, "at least one"),
        (np.zeros((2, 0, 2), dtype=int), {}, "at least one"),
        (np.zeros((2, 2, 0), dtype=int), {}, "at least one"),
        ([[[0, 4]]], {}, "0 to num_experts - 1, .* got 4 with num_experts 4"),
        ([[[0, -2]]], {}, "got -2"),
        (np.array([[[2**63]]], dtype=np.uint64), {}, "got 9223372036854775808"),
        ([[[2, 2]]], {}, "got 2 twice at token 0, layer 0"),
        ([[[0, 1, 2, 3, -1]]], {}, "top_k <= num_experts, got top_k 5"),
        ([[[-1, 2]]], {}, "fill slots from the front"),
        ([[[-1], [-1]]], {}, "serve at least one token in some layer"),
        ([[[0]]], {"phases": [2]}, r"trace.phases must be 0 \(prefill\) or 1 \(decode\), got 2"),
        ([[[0]]], {"phases": [0, 1]}, "trace.phases must have one value a token"),
        ([[[0]], [[1]]], {"event_ids": [3, 2]}, "must not fall inside a sequence, got 2 after 3 at token 1"),
        ([[[0, 1]]], {"resident": [[[0, 3]]]}, r"trace.resident must be .* got 3"),
        ([[[0, 1]]], {"resident": [[0, 1]]}, "trace.resident must have the shape of expert_ids"),
        ([[[0, -1]]], {"resident": [[[0, 0]]]}, "-1 in empty slots, got another at token 0, layer 0, slot 1"),
        ([[[0], [1]]], {"layer_names": ["a"]}, "trace.layer_names must be 2 words"),
        ([[[0], [1]]], {"layer_names": "ab"}, "trace.layer_names must be 2 words"),
        ([[[0], [1]]], {"layer_names": ["a", "a"]}, "differ from layer to layer, got 'a' twice"),
        ([[[0], [1]]], {"expert_bytes": [8]}, r"one value a layer, shape \(2,\)"),
        ([[[0], [1]]], {"expert_bytes": [8, 0]}, "trace.expert_bytes must be from 1 to .* got 0"),
        ([[[0]]], {"num_experts": 0}, "num_experts must be a whole number from 1 to 2147483648, got 0"),
        ([[[0]]], {"num_experts": 2**31 + 1}, "num_experts"),
        ([[[0]]], {"num_experts": 4.0}, "num_experts"),
        ([[[0]], [[1]], [[0]]], {"sequence_ids": [0, 1, 0]}, "several pieces"),
        ([[[0]]], {"sequence_ids": [0, 1]}, r"one value a token, shape \(1,\)"),
        ([[[0]]], {"token_ids": [0.5]}, "trace.token_ids must be whole numbers"),
        ([[[0]]], {"document_ids": np.array([2**63], dtype=np.uint64)}, "trace.document_ids must fit"),
        (
            [[[0, 1]]],
            {"expert_weights": np.array([[[0.5, np.nan]]])},
            "finite in float32, got nan at token 0, layer 0, slot 1",
        ),
        ([[[0, 1]]], {"expert_weights": np.array([[[1e300, 0.0]]])}, "finite in float32, got inf"),
        ([[[0, 1]]], {"expert_weights": np.array([[[0.4, 0.6]]])}, "largest in slot 0"),
        ([[[0, 1]]], {"expert_weights": np.array([[0.6, 0.4]])}, "shape of expert_ids"),
        ([[[0, 1]]], {"expert_weights": np.array([[["a", "b"]]])}, "must be numbers"),
        ([[[0]]], {"provenance": {"loss": float("nan")}}, "trace.provenance must be JSON"),
        ([[[0]]], {"provenance": [1]}, "trace.provenance must be a mapping, got list"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(ids, columns, words):
    with pytest.raises(TraceError, match=words) as caught:
        trace_of(ids, **columns)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sequences", "words"),
    [
        ([], "at least one sequence"),
        ([[[[0]]], []], "trace sequence 1 must be shaped .* got shape"),
        (
            [[[[0]]], [[[0], [1]]]],
            r"trace sequence 1 must have the layers and slots of sequence 0, \(1, 1\), got \(2, 1\)",
        ),
        ([[[[0]], [[0, 1]]]], "trace sequence 0 must be a rectangular array"),
        ([[[[0.5]]]], "trace sequence 0 must be whole numbers"),
    ],
)
def test_a_sequence_that_does_not_fit_is_named(sequences, words):
    with pytest.raises(TraceError, match=words):
        RoutingTrace.from_sequences(sequences, num_experts=4)


def test_a_weight_beside_an_unassigned_slot_does_not_count_as_the_largest():
    trace = trace_of([[[0, -1]]], expert_weights=np.array([[[0.4, 0.6]]]))
    assert trace.expert_ids.tolist() == [[[0, -1]]]


def test_traces_metrics_and_cache_start_without_torch_and_transformers():
    program = (
        "import sys, stickymoe.metrics, stickymoe.cache, stickymoe.traces.reader, stickymoe.traces.writer;"
        "import stickymoe.traces.importers.registry;"
        "print([name for name in ('torch', 'transformers', 'accelerate') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize(
    ("ids", "weights", "words"),
    [
        ([[[0, 1]]] * 4 + [[[2, 2]]], None, "got 2 twice at token 4, layer 0"),
        ([[list(range(20))]] * 4 + [[[*range(19), 7]]], None, "got 7 twice at token 4, layer 0"),
        ([[[0, -1]]] * 4 + [[[-1, 2]]], None, "an unassigned slot at token 4, layer 0"),
        ([[[0, 1]]] * 5, [[[1, 0]]] * 4 + [[[1, np.inf]]], "got inf at token 4, layer 0, slot 1"),
        ([[[0, 1]]] * 5, [[[1, 0]]] * 4 + [[[0, 1]]], "a heavier slot at token 4, layer 0"),
    ],
)
@pytest.mark.parametrize("values", [1, 40])
def test_a_rule_broken_far_into_a_trace_is_found_where_it_is_broken(monkeypatch, ids, weights, words, values):
    from stickymoe.traces import checks

    monkeypatch.setattr(checks, "CHECKED_VALUES", values)
    weights = None if weights is None else np.array(weights, dtype=np.float32)
    with pytest.raises(TraceError, match=words):
        trace_of(ids, num_experts=32, expert_weights=weights)
    assert trace_of([[[-1, -1]]] * 4 + [[[3, -1]]]).expert_ids[4].tolist() == [[3, -1]]
