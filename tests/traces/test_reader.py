"""Trace files: nothing in one is believed, and its pieces make the whole."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace, open_trace
from stickymoe.traces.schema import HEADER_KEY

REUSED_FOLDER = [HealthCheck.function_scoped_fixture]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    rng = default_rng(0)
    ids = np.argsort(rng.random((50, 2, 8)), axis=-1)[..., :3]
    RoutingTrace(ids, np.arange(50) // 20, 8, token_ids=np.arange(50), provenance={"model": "tiny"}).save(path)
    return path


def refused(path: Path, **options) -> str:
    with pytest.raises(TraceError) as caught:
        RoutingTrace.load(path, **options)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def rewritten(path: Path, table: pa.Table | None = None, **header) -> Path:
    """Write the trace again with another table or other words in its header."""
    table = pq.read_table(path) if table is None else table
    words = json.loads(pq.read_schema(path).metadata[HEADER_KEY]) | header
    pq.write_table(table.replace_schema_metadata({HEADER_KEY: json.dumps(words)}), path)
    return path


def with_column(path: Path, name: str, values: pa.Array, nullable: bool = False) -> pa.Table:
    table = pq.read_table(path)
    field = pa.field(name, values.type, nullable=nullable)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), field, values)
    return table.append_column(field, values)


def test_a_file_says_what_it_is_to_any_parquet_reader(saved):
    table = pq.read_table(saved)
    assert table.column_names == ["sequence_id", "token_id", "expert_ids"]
    assert json.loads(table.schema.metadata[b"stickymoe.trace"]) == {
        "version": 2,
        "num_experts": 8,
        "num_layers": 2,
        "top_k": 3,
        "provenance": {"model": "tiny"},
    }
    loaded = RoutingTrace.load(saved)
    assert table["expert_ids"].to_pylist() == loaded.expert_ids.reshape(50, 6).tolist()


def test_a_rewritten_but_true_file_is_read(saved):
    before = RoutingTrace.load(saved)
    assert RoutingTrace.load(rewritten(saved)) == before


@settings(suppress_health_check=REUSED_FOLDER, max_examples=40, deadline=None)
@given(kept=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(saved, kept):
    content = saved.read_bytes()
    short = saved.with_name("short.parquet")
    short.write_bytes(content[: int(kept * len(content))])
    refused(short)


@settings(suppress_health_check=REUSED_FOLDER, max_examples=100, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_never_changes_the_routing_unnoticed(saved, place, flip):
    content = bytearray(saved.read_bytes())
    content[int(place * len(content))] ^= flip
    damaged = saved.with_name("damaged.parquet")
    damaged.write_bytes(content)
    loaded = None
    with contextlib.suppress(TraceError):
        loaded = RoutingTrace.load(damaged)
    assert loaded is None or np.array_equal(loaded.expert_ids, RoutingTrace.load(saved).expert_ids)


def test_what_is_not_a_trace_is_refused(tmp_path, saved):
    assert "found nothing" in refused(tmp_path / "absent.parquet")
    assert "found a folder" in refused(tmp_path)
    (tmp_path / "empty.parquet").touch()
    assert "not a readable trace file" in refused(tmp_path / "empty.parquet")
    (tmp_path / "text.parquet").write_text("expert_ids\n" * 100)
    assert "not a readable trace file" in refused(tmp_path / "text.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    assert "stickymoe.trace" in refused(tmp_path / "other.parquet")
    pq.write_table(pq.read_table(saved).replace_schema_metadata({HEADER_KEY: "[" * 100_000}), saved)
    refused(saved)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"version": 3}, "version must be from 1 to 2, got 3"),
        ({"version": "2"}, "version must be from 1 to 2, got '2'"),
        ({"version": True}, "version must be from 1 to 2, got True"),
        ({"layer_names": "ab"}, "layer_names must be a list of words"),
        ({"layer_names": ["a"]}, "layer_names must be 2 words, one a layer"),
        ({"layer_names": ["a", 3]}, "layer_names must be 2 words, one a layer"),
        ({"expert_bytes": [1]}, "one value a layer"),
        ({"expert_bytes": [1, 0]}, "expert_bytes must be from 1"),
        ({"expert_bytes": "many"}, "expert_bytes must be whole numbers"),
        ({"num_layers": 3}, "column 'expert_ids' must be fixed_size_list"),
        ({"num_layers": 2**40}, "num_layers must be a whole number"),
        ({"num_layers": 2**20, "top_k": 2**20}, "below 2\\*\\*31"),
        ({"top_k": 0}, "top_k must be a whole number >= 1, got 0"),
        ({"top_k": 3.0}, "top_k must be a whole number"),
        ({"num_layers": 3, "top_k": 2}, "once a token and layer|largest|0 to num_experts"),
        ({"num_experts": 7}, "got 7 with num_experts 7"),
        ({"num_experts": "8"}, "trace.num_experts"),
        ({"num_experts": 40_000}, "column 'expert_ids' must be .*int32"),
        ({"provenance": "mine"}, "trace.provenance must be a mapping"),
    ],
)
def test_a_lying_header_is_refused_before_it_is_used(saved, header, words):
    if header.keys() == {"num_layers", "top_k"} and header["top_k"] == 2:
        ids = pq.read_table(saved)["expert_ids"].to_pylist()
        assert any(row[2] == row[3] for row in ids), (
            "the case needs a token that repeats an expert under the wrong shape"
        )
    with pytest.raises(TraceError, match=words):
        RoutingTrace.load(rewritten(saved, **header))


@pytest.mark.parametrize("name", ["num_experts", "num_layers", "top_k", "provenance"])
def test_a_header_that_lacks_a_word_is_refused(saved, name):
    table = pq.read_table(saved)
    header = json.loads(table.schema.metadata[HEADER_KEY])
    del header[name]
    pq.write_table(table.replace_schema_metadata({HEADER_KEY: json.dumps(header)}), saved)
    assert f"must name {name}" in refused(saved)


def test_columns_are_checked_one_by_one(saved):
    rows = range(50)
    original = saved.read_bytes()
    for name, values, words in [
        ("extra", pa.array(rows), "'extra'"),
        ("token_id", pa.array([float(row) for row in rows]), "column 'token_id' must be int64"),
        ("token_id", pa.array([None, *rows[1:]], pa.int64()), "a value in every row"),
        ("sequence_id", pa.array([row % 2 for row in rows]), "several pieces"),
    ]:
        saved.write_bytes(original)
        assert words in refused(rewritten(saved, with_column(saved, name, values, nullable=True)))
    saved.write_bytes(original)
    assert "must include 'sequence_id'" in refused(rewritten(saved, pq.read_table(saved).drop_columns(["sequence_id"])))


def test_a_trace_larger_than_allowed_is_refused(saved):
    assert "max_bytes 100" in refused(saved, max_bytes=100)
    row_bytes = 8 + 8 + 6 * 2
    assert RoutingTrace.load(saved, max_bytes=50 * row_bytes).num_tokens == 50
    refused(saved, max_bytes=50 * row_bytes - 1)


def test_a_file_without_rows_is_refused(saved):
    assert "at least one token" in refused(rewritten(saved, pq.read_table(saved).slice(0, 0)))


def test_a_file_of_version_1_is_read(saved):
    trace = RoutingTrace.load(saved)
    assert RoutingTrace.load(rewritten(saved, version=1)) == trace


def test_a_column_is_refused_in_a_version_that_did_not_have_it(saved):
    phases = with_column(saved, "phase", pa.array([0] * 50, pa.uint8()))
    assert "'phase'" in refused(rewritten(saved, phases, version=1))
    assert RoutingTrace.load(rewritten(saved, phases, version=2)).phases.tolist() == [0] * 50


@pytest.mark.parametrize("rows", [1, 7, 20, 49, 50, 1000, None])
def test_pieces_make_the_whole(saved, rows):
    with open_trace(saved) as reader:
        assert (reader.num_tokens, reader.facts.num_layers, reader.facts.top_k) == (50, 2, 3)
        pieces = list(reader.batches(rows))
        assert [piece.num_tokens for piece in pieces[:-1]] == [rows] * (len(pieces) - 1)
        assert RoutingTrace.concat(pieces, join_sequences=True) == RoutingTrace.load(saved) == reader.read()


def test_a_piece_larger_than_allowed_is_refused_and_a_smaller_one_is_not(saved):
    row_bytes = 8 + 8 + 6 * 2
    with open_trace(saved, max_bytes=10 * row_bytes) as reader:
        assert len(list(reader.batches(10))) == 5
        with pytest.raises(TraceError, match="max_bytes"):
            next(reader.batches(11))
        with pytest.raises(SettingError, match="rows must be >= 1, got 0"):
            next(reader.batches(0))


def test_rules_hold_across_pieces(saved):
    def read_by_tens(name: str, values: list[int]) -> None:
        with open_trace(rewritten(saved, with_column(saved, name, pa.array(values, pa.int64())))) as reader:
            list(reader.batches(10))

    with pytest.raises(TraceError, match="got sequence 0 in several pieces"):
        read_by_tens("sequence_id", [0] * 10 + [1] * 10 + [0] * 30)
    read_by_tens("sequence_id", [3] * 20 + [1] * 20 + [2] * 10)
    with pytest.raises(TraceError, match="got 3 after 4 where a piece goes on with sequence 1"):
        read_by_tens("event_id", [0] * 20 + [4] * 10 + [3] * 20)
    read_by_tens("event_id", [0] * 10 + [4] * 30 + [3] * 10)
