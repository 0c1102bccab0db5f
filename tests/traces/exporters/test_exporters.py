"""What is written for others is read back by the importer of the same name, and what is lost is named."""

import contextlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, StorageError, TraceError, TraceWarning
from stickymoe.traces import RoutingTrace, read_trace, write_trace_as
from stickymoe.traces.exporters.registry import EXPORTERS
from stickymoe.traces.importers.registry import IMPORTERS

REUSED_FOLDER = [HealthCheck.function_scoped_fixture]


@st.composite
def parts_of_traces(draw, ragged: bool = True, layers: int = 3) -> dict[str, Any]:
    """Draw the parts of a trace; `ragged` ones have empty slots and layers that did not serve."""
    tokens, layers, top_k = draw(st.integers(1, 8)), draw(st.integers(1, layers)), draw(st.integers(1, 3))
    rng = default_rng(draw(st.integers(0, 2**32)))
    ids = np.argsort(rng.random((tokens, layers, 9)), axis=-1)[..., :top_k]
    if ragged and draw(st.booleans()):
        ids[rng.random((tokens, layers)) < 0.3, 1:] = -1
        ids[1:][rng.random((tokens - 1, layers)) < 0.2] = -1
    weights = -np.sort(-rng.random(ids.shape).astype(np.float32), axis=-1)
    sequences = np.sort(rng.integers(0, 3, tokens))
    known: dict[str, Any] = {
        "expert_weights": np.where(ids == -1, 0, weights),
        "token_ids": rng.integers(0, 2**40, tokens),
        "document_ids": rng.integers(0, 3, tokens),
        "positions": rng.integers(-5, 5, tokens),
        "phases": rng.integers(0, 2, tokens),
        "event_ids": np.sort(rng.integers(0, 4, tokens)),
        "resident": np.where(ids == -1, -1, rng.integers(0, 3, ids.shape)),
        "layer_names": draw(
            st.sampled_from([[str(n + 3) for n in range(layers)], [f"mtp.{n}" for n in range(layers)]])
        ),
    }
    parts = {"expert_ids": ids, "sequence_ids": sequences, "num_experts": 9}
    return parts | {name: value for name, value in known.items() if draw(st.booleans())}


def written(trace: RoutingTrace, path: Path, format: str, **options) -> RoutingTrace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        write_trace_as(trace, path, format)
        found = read_trace(path, **options)
    assert found.provenance.get("format", "stickymoe") == format
    return found


def sequences_of(trace: RoutingTrace) -> list[Any]:
    return [sequence.tolist() for sequence in trace.sequences()]


def places(trace: RoutingTrace) -> np.ndarray:
    starts = trace.sequence_starts()
    return np.arange(trace.num_tokens) - np.repeat(starts[:-1], np.diff(starts))


def test_every_exporter_has_an_importer_of_its_name():
    assert set(EXPORTERS) <= set(IMPORTERS)
    for name, exporter in EXPORTERS.items():
        assert exporter.name == name
        assert exporter.what
        assert exporter.suffix.startswith(".")


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=30)
@given(parts=parts_of_traces())
def test_json_lines_keep_all_but_provenance_and_sizes(tmp_path, parts):
    trace = RoutingTrace(**parts)
    found = written(trace, tmp_path / "t", "jsonl")
    assert (found.num_experts, found.names) == (9, trace.names)
    assert sequences_of(found) == sequences_of(trace)
    for name in ("expert_weights", "token_ids", "document_ids", "phases", "event_ids", "resident"):
        left, right = getattr(found, name), getattr(trace, name)
        assert (left is None) == (right is None), name
        assert left is None or np.array_equal(left, right), name
    assert np.array_equal(found.positions, places(trace) if trace.positions is None else trace.positions)


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=25)
@given(parts=parts_of_traces())
def test_npz_keeps_all_but_residency_and_sizes(tmp_path, parts):
    trace = RoutingTrace(**parts)
    if (trace.expert_ids == -1).all(axis=(0, 2)).any():
        return  # a layer that routes nothing is taken for a dense one
    found = written(trace, tmp_path / "t", "npz")
    assert found.num_experts == 9
    assert np.array_equal(found.expert_ids, trace.expert_ids)
    for name in ("sequence_ids", "expert_weights", "token_ids", "document_ids", "positions", "phases", "event_ids"):
        left, right = getattr(found, name), getattr(trace, name)
        assert (left is None) == (right is None), name
        assert left is None or np.array_equal(left, right), name


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=25)
@given(parts=parts_of_traces(ragged=False))
@pytest.mark.parametrize("format", ["llama-csv", "colibri"])
def test_texts_of_engines_keep_ids_in_order(tmp_path, format, parts):
    trace = RoutingTrace(**parts)
    if format == "colibri" and trace.expert_weights is None:
        with pytest.raises(TraceError, match="a gate for every expert, got a trace without weights"):
            write_trace_as(trace, tmp_path / "t", format)
        return
    options = {"top_k": trace.top_k} if format == "llama-csv" else {}
    with contextlib.suppress(TraceError):  # passes of a single layer cannot be told apart where they have many tokens
        found = written(trace, tmp_path / "t", format, num_experts=9, **options)
        assert sorted(map(str, found.expert_ids)) == sorted(map(str, trace.expert_ids))
        assert np.array_equal(found.expert_ids, trace.expert_ids)
        if trace.names[0] == "3":
            assert found.names == trace.names
        if format == "colibri":
            assert np.allclose(found.expert_weights, trace.expert_weights, atol=0.5e-4)
        return
    assert trace.num_layers == 1


def test_our_own_format_keeps_everything(tmp_path):
    trace = RoutingTrace([[[1, 0]]], [3], 4, expert_bytes=[5], resident=[[[0, 1]]], provenance={"a": 1})
    write_trace_as(trace, tmp_path / "t", "stickymoe")
    assert read_trace(tmp_path / "t") == trace


def trace_of(ids: Any, **known: Any) -> RoutingTrace:
    return RoutingTrace(ids, np.zeros(len(ids), dtype=int), 9, **known)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("llama-csv", "layer,expert\n3,0\n3,1\n3,2\n3,3\n5,4\n5,5\n5,6\n5,7\n3,8\n3,0\n5,1\n5,2\n"),
        (
            "colibri",
            "0 0 3 0:0.7500 1:0.2500\n0 1 3 2:0.7500 3:0.2500\n1 0 5 4:0.7500 5:0.2500\n1 1 5 6:0.7500 7:0.2500\n"
            "2 0 3 8:0.7500 0:0.2500\n3 0 5 1:0.7500 2:0.2500\n",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::stickymoe.core.errors.TraceWarning")
def test_engines_write_a_pass_layer_by_layer(tmp_path, format, text):
    ids = [[[0, 1], [4, 5]], [[2, 3], [6, 7]], [[8, 0], [1, 2]]]
    weights = np.full((3, 2, 2), [0.75, 0.25], dtype=np.float32)
    trace = trace_of(ids, expert_weights=weights, event_ids=[0, 0, 1], layer_names=["3", "5"])
    write_trace_as(trace, tmp_path / "t", format)
    assert (tmp_path / "t").read_text() == text


def test_a_record_of_json_lines_says_what_is_known(tmp_path):
    trace = trace_of(
        [[[4, -1]]], expert_weights=np.float32([[[0.1, 0]]]), phases=[1], layer_names=["3"], provenance={"model": "m"}
    )
    write_trace_as(trace, tmp_path / "t", "jsonl")
    assert [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()] == [
        {"type": "meta", "num_experts": 9, "top_k": 2, "num_layers": 1, "model": "m"},
        {"sequence": 0, "token": 0, "phase": "decode", "layer": 3, "experts": [4], "weights": [0.1]},
    ]


@pytest.mark.parametrize(
    ("format", "known", "words"),
    [
        ("jsonl", {"expert_bytes": [1]}, "jsonl files do not keep the bytes of experts"),
        ("npz", {"expert_bytes": [1]}, "npz files do not keep the bytes of experts"),
        ("npz", {"resident": [[[1]]]}, "npz files do not keep what the device had resident"),
        ("llama-csv", {}, "llama-csv files do not keep weights, positions, the number of experts"),
        ("colibri", {"expert_weights": np.ones((1, 1, 1))}, "colibri files do not keep gates beyond four places"),
    ],
)
def test_what_a_format_loses_is_named(tmp_path, format, known, words):
    with pytest.warns(TraceWarning, match=words):
        write_trace_as(trace_of([[[0]]], **known), tmp_path / "t", format)


@pytest.mark.filterwarnings("ignore::stickymoe.core.errors.TraceWarning")
@pytest.mark.parametrize(
    ("format", "ids", "words"),
    [
        ("llama-csv", [[[0, -1]]], "an expert in every slot, got none at token 0, layer 0"),
        ("colibri", [[[0, 1]], [[-1, -1]]], "an expert for every token and layer, got none at token 1, layer 0"),
    ],
)
def test_what_a_format_cannot_say_is_refused_and_leaves_nothing(tmp_path, format, ids, words):
    trace = trace_of(ids, expert_weights=np.zeros(np.shape(ids)))
    with pytest.raises(TraceError, match=re.escape(str(tmp_path / "t")) + " cannot be written: .*" + words) as caught:
        write_trace_as(trace, tmp_path / "t", format)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_and_a_refused_path_are_one_line(tmp_path):
    with pytest.raises(SettingError, match=r"format must be one of .* got 'nzp'; did you mean 'npz'"):
        write_trace_as(trace_of([[[0]]]), tmp_path / "t", "nzp")
    (tmp_path / "file").touch()
    for format in ("npz", "jsonl", "stickymoe"):
        with pytest.raises(StorageError, match="could not write"):
            write_trace_as(trace_of([[[0]]]), tmp_path / "file" / "t", format)
