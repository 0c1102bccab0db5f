"""Home-made tables as text and as Parquet: one expert a row, all in a cell, or a column a slot."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.traces import DECODE, PREFILL, RoutingTrace, read_trace
from stickymoe.traces.importers import generic_csv

REUSED_FOLDER = [HealthCheck.function_scoped_fixture]
IDS = np.argsort(default_rng(0).random((5, 2, 16)), axis=-1)[..., :3]
WEIGHTS = -np.sort(-default_rng(1).random((5, 2, 3)), axis=-1).round(3)
LAYERS = (3, 7)


def table(form: str, layer_major: bool = False) -> tuple[list[str], list[list[object]]]:
    """Return names and rows of the same routing in one of the forms that tables have."""
    names: list[str] = {
        "long": ["token", "layer", "rank", "expert_id", "weight", "phase"],
        "long without rank": ["token", "layer", "expert", "gate", "phase"],
        "cell": ["token", "layer", "experts", "weights", "phase"],
        "wide": ["token", "layer", "e0", "e1", "e2", "w0", "w1", "w2", "phase"],
    }[form]
    rows: list[list[object]] = []
    order = [(token, layer) for token in range(5) for layer in range(2)]
    for token, layer in sorted(order, key=lambda pair: pair[1]) if layer_major else order:
        ids, weights = IDS[token, layer].tolist(), WEIGHTS[token, layer].tolist()
        phase, key = "PREFILL" if token < 2 else "DECODE", [token, LAYERS[layer]]
        if form == "long":
            rows += [[*key, slot, ids[slot], weights[slot], phase] for slot in range(3)]
        elif form == "long without rank":
            rows += [[*key, ids[slot], weights[slot], phase] for slot in range(3)]
        elif form == "cell":
            rows.append([*key, ids, weights, phase])
        else:
            rows.append([*key, *ids, *weights, phase])
    return names, rows


def text_of(names: list[str], rows: list[list[object]], delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerows([names, *rows])
    return out.getvalue()


def is_the_table(trace: RoutingTrace) -> bool:
    return (
        np.array_equal(trace.expert_ids, IDS)
        and np.array_equal(trace.expert_weights, WEIGHTS.astype(np.float32))
        and trace.names == ("3", "7")
        and trace.phases.tolist() == [PREFILL] * 2 + [DECODE] * 3
        and trace.positions.tolist() == list(range(5))
        and trace.num_sequences == 1
    )


@pytest.mark.parametrize("form", ["long", "long without rank", "cell", "wide"])
@pytest.mark.parametrize("layer_major", [False, True])
@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_every_form_of_a_table_is_the_same_trace(tmp_path, form, layer_major, delimiter):
    text = text_of(*table(form, layer_major), delimiter)
    (tmp_path / "trace").write_text("# made by hand\n\n" + text)
    trace = read_trace(tmp_path / "trace")
    assert trace.provenance["format"] == "csv"
    assert is_the_table(trace)


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=20)
@given(form=st.sampled_from(["long", "long without rank", "cell", "wide"]), block=st.integers(90, 400))
def test_tokens_may_lie_across_the_blocks_of_a_file(tmp_path, form, block):
    (tmp_path / "trace").write_text(text_of(*table(form)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generic_csv, "BLOCK_BYTES", block)
        assert is_the_table(read_trace(tmp_path / "trace"))


@pytest.mark.parametrize("cell", ["{} {} {}", "[{}, {}, {}]", "{};{};{}", "({}|{}|{})", "  {}   {}  {} "])
def test_a_cell_may_hold_its_ids_in_any_brackets(tmp_path, cell):
    names, rows = table("cell")
    rows = [[*row[:2], cell.format(*row[2]), "x", *row[4:]] for row in rows]
    names[3] = "note"
    (tmp_path / "trace").write_text(text_of(names, rows))
    assert np.array_equal(read_trace(tmp_path / "trace").expert_ids, IDS)


def test_empty_cells_are_empty_slots(tmp_path):
    (tmp_path / "wide").write_text("token,layer,e0,e1\n0,0,3,\n1,0,2,1\n")
    assert read_trace(tmp_path / "wide").expert_ids.tolist() == [[[3, -1]], [[2, 1]]]
    (tmp_path / "long").write_text("token,layer,expert\n0,0,3\n1,0,2\n1,0,1\n")
    assert read_trace(tmp_path / "long").expert_ids.tolist() == [[[3, -1]], [[2, 1]]]


def test_requests_and_layers_may_be_words(tmp_path):
    (tmp_path / "t").write_text("request,token,layer,experts\na,0,blk.1,3 2\nb,0,blk.1,1 0\na,1,blk.1,2 0\n")
    trace = read_trace(tmp_path / "t")
    assert [s.tolist() for s in trace.sequences()] == [[[[3, 2]], [[2, 0]]], [[[1, 0]]]]
    assert trace.names == ("blk.1",)


def test_appended_tables_of_one_expert_a_row_are_runs(tmp_path):
    names, rows = table("long")
    (tmp_path / "t").write_text(text_of(names, rows + rows[:18]))
    assert [len(sequence) for sequence in read_trace(tmp_path / "t").sequences()] == [5, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("token,layer,expert\n0,0,1\n0,0,x\n", "expert must be a whole number, got 'x'"),
        ("token,layer,expert\n" + "0,0,1\n" * 300 + "0,0,x\n", "'x'"),
        ("token,layer,expert\n0,0\n", "token or layer and its experts"),
        ("token,layer,experts\n0,0,[]\n", "empty list"),
        ("token,layer,experts\n0,0,1 2\n1,0,[]\n", "empty list|whole numbers"),
        ("token,layer,expert,rank\n0,0,1,0\n1,0,2,0\n0,0,3,1\n1,0,4,1\n", "stand together"),
        ("token,layer,expert\n0,0,1\n0,0\n", "csv file"),
        ("token,layer,expert\n0,0,1\n0,0,1\n", "got 1 twice"),
        ("token,layer,expert\n", "token or layer and its experts"),
        ("a,b\n1,2\n", "the first line must name the columns"),
        ("token,layer,expert\n0,0,1\n,0,2\n", "record 2 must name its token"),
        ("token,layer,expert\n0,0,-5\n", "got -5"),
        ("token,layer,expert,expert\n0,0,1,2\n", "the first line must name the columns"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(tmp_path, refused, text, words):
    (tmp_path / "t").write_text(text)
    message = refused(tmp_path / "t", format="csv")
    assert any(word in message for word in words.split("|")), message


def policylang(path: Path) -> Path:
    """Write a table as moe-policylang does."""
    columns = {
        "prompt_id": pa.array([0] * 10),
        "token_idx": pa.array(np.repeat(np.arange(5), 2), pa.int32()),
        "layer_idx": pa.array(LAYERS * 5, pa.int16()),
        "selected_experts": pa.array(IDS.reshape(10, 3).tolist(), pa.list_(pa.int32())),
        "router_scores": pa.array(WEIGHTS.reshape(10, 3).tolist(), pa.list_(pa.float64())),
        "router_softmax": pa.array([[0.0] * 16] * 10),
        "phase": pa.array(["prefill"] * 4 + ["decode"] * 6).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_tables_are_read_under_their_names(tmp_path, monkeypatch):
    trace = read_trace(policylang(tmp_path / "t"))
    assert trace.provenance["format"] == "parquet"
    assert is_the_table(trace)


@pytest.mark.parametrize("kind", [pa.large_list(pa.uint8()), pa.list_(pa.int64(), 3), pa.list_(pa.int16())])
def test_lists_of_every_kind_are_lists(tmp_path, kind):
    policylang(tmp_path / "t")
    found = pq.read_table(tmp_path / "t")
    at = found.column_names.index("selected_experts")
    ids = pa.chunked_array([found["selected_experts"].combine_chunks().cast(kind)])
    pq.write_table(found.set_column(at, "selected_experts", ids), tmp_path / "t")
    assert is_the_table(read_trace(tmp_path / "t"))


def test_a_parquet_table_of_something_else_is_refused(tmp_path, refused):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t")
    assert "known format" in refused(tmp_path / "t")
    assert "token or layer and its experts" in refused(tmp_path / "t", format="parquet")
    pq.write_table(pa.table({"token": [0], "layer": [0], "experts": [[2**40]]}), tmp_path / "t")
    refused(tmp_path / "t")
    content = policylang(tmp_path / "t").read_bytes()
    (tmp_path / "t").write_bytes(content[:-20])
    refused(tmp_path / "t")
