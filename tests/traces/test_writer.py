"""What is written comes back exactly, and a write that fails leaves what was there."""

import dataclasses
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import StorageError, TraceError
from stickymoe.traces import RoutingTrace, TraceWriter, open_trace, schema, writer
from stickymoe.traces.trace import TOKEN_FIELDS

REUSED_FOLDER = [HealthCheck.function_scoped_fixture]
JSON = st.dictionaries(
    st.text(max_size=3),
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    max_size=3,
)


@st.composite
def trace_parts(draw) -> dict[str, Any]:
    tokens, layers, top_k = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    num_experts = draw(st.sampled_from([top_k, 7, 300, 2**15, 2**15 + 1, 2**31]))
    rng = default_rng(draw(st.integers(0, 2**32)))
    near_top = rng.permuted(np.tile(np.arange(max(0, num_experts - 7), num_experts), (tokens, layers, 1)), axis=-1)
    ids = near_top[..., :top_k].copy()
    if draw(st.booleans()):
        ids[1:, :, 1:] = -1
    optional = {
        name: rng.integers(-9, 2**40, tokens) if draw(st.booleans()) else None
        for name in ("token_ids", "document_ids", "positions")
    }
    weights = -np.sort(-rng.normal(size=ids.shape).astype(np.float32), axis=-1) if draw(st.booleans()) else None
    sequences = np.sort(rng.integers(0, 3, tokens))[:: draw(st.sampled_from([1, -1]))]
    optional |= {"expert_weights": weights, "provenance": draw(JSON)}
    known = {
        "phases": rng.integers(0, 2, tokens),
        "event_ids": np.sort(rng.integers(0, 2**40, tokens)),
        "resident": np.where(ids == -1, -1, rng.integers(-1, 3, ids.shape)),
        "layer_names": [f"{draw(st.text(max_size=2))}.{layer}" for layer in range(layers)],
        "expert_bytes": rng.integers(1, 2**40, layers),
    }
    optional |= {name: value for name, value in known.items() if draw(st.booleans())}
    return {"expert_ids": ids, "sequence_ids": sequences, "num_experts": num_experts} | optional


@settings(suppress_health_check=REUSED_FOLDER, max_examples=60, deadline=None)
@given(parts=trace_parts(), batch_bytes=st.sampled_from([1, 40, schema.BATCH_BYTES]))
def test_a_trace_comes_back_exactly(tmp_path: Path, parts, batch_bytes):
    trace = RoutingTrace(**parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "BATCH_BYTES", batch_bytes)
        trace.save(tmp_path / "trace.parquet")
        loaded = RoutingTrace.load(str(tmp_path / "trace.parquet"))
    assert loaded == trace
    assert loaded.expert_ids.dtype == trace.expert_ids.dtype


@settings(suppress_health_check=REUSED_FOLDER, max_examples=60, deadline=None)
@given(
    parts=trace_parts(),
    cuts=st.lists(st.integers(1, 8), max_size=3),
    rows=st.integers(1, 10),
    batch_bytes=st.sampled_from([1, 40, schema.BATCH_BYTES]),
)
def test_a_trace_written_in_pieces_comes_back_whole_and_in_other_pieces(tmp_path: Path, parts, cuts, rows, batch_bytes):
    trace = RoutingTrace(**parts)
    path = tmp_path / "trace.parquet"
    bounds = [0, *sorted({cut for cut in cuts if cut < trace.num_tokens}), trace.num_tokens]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "BATCH_BYTES", batch_bytes)
        with TraceWriter(path) as file:
            for start, stop in pairwise(bounds):
                file.write(rows_of(trace, start, stop))
        assert RoutingTrace.load(path) == trace
        with open_trace(path) as reader:
            assert RoutingTrace.concat(list(reader.batches(rows)), join_sequences=True) == trace


def rows_of(trace: RoutingTrace, start: int, stop: int) -> RoutingTrace:
    changes: dict[str, Any] = {
        name: getattr(trace, name)[start:stop]
        for name in ("expert_ids", *TOKEN_FIELDS)
        if getattr(trace, name) is not None
    }
    facts = ("num_experts", "layer_names", "expert_bytes", "provenance")
    return RoutingTrace(**changes, **{name: getattr(trace, name) for name in facts})


@pytest.fixture
def trace() -> RoutingTrace:
    rng = default_rng(0)
    ids = np.argsort(rng.random((50, 2, 8)), axis=-1)[..., :3]
    return RoutingTrace(ids, np.arange(50) // 20, 8, token_ids=np.arange(50), provenance={"model": "tiny"})


@pytest.fixture
def saved(tmp_path: Path, trace) -> Path:
    trace.save(tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def only(path: Path) -> bool:
    return [each.name for each in path.parent.iterdir()] == [path.name]


def test_many_small_pieces_make_one_row_group(tmp_path, trace):
    with TraceWriter(tmp_path / "trace.parquet", provenance={"model": "other"}) as file:
        for token in range(50):
            file.write(rows_of(trace, token, token + 1))
    assert pq.ParquetFile(tmp_path / "trace.parquet").num_row_groups == 1
    assert RoutingTrace.load(tmp_path / "trace.parquet").provenance == {"model": "other"}


def write_both(path: Path, *pieces: RoutingTrace) -> None:
    with TraceWriter(path) as file:
        for piece in pieces:
            file.write(piece)


def test_pieces_that_do_not_go_together_are_refused_and_leave_nothing(tmp_path, trace):
    path = tmp_path / "trace.parquet"
    other = [
        ("must have the top_k of the first piece, got 2", {"expert_ids": trace.expert_ids[..., :2]}),
        ("must have the num_layers", {"expert_ids": trace.expert_ids[:, :1]}),
        ("must have the num_experts", {"num_experts": 9}),
        ("must have the names", {"layer_names": ("x", "y")}),
        ("must have the expert_bytes", {"expert_bytes": [1, 2]}),
        ("got token_ids in only one", {"token_ids": None}),
        ("got phases in only one", {"phases": [0] * 50}),
        ("got sequence 0 in several pieces", {}),
    ]
    for words, changes in other:
        with pytest.raises(TraceError, match=words) as caught:
            write_both(path, trace, dataclasses.replace(trace, **changes))
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.iterdir())


def test_a_writer_that_was_given_nothing_leaves_nothing(tmp_path):
    with pytest.raises(TraceError, match="at least one token, got no piece"), TraceWriter(tmp_path / "trace.parquet"):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(2, "the caller's own"), ValueError("theirs")])
def test_an_error_of_the_callers_leaves_what_was_there_and_reaches_him_unchanged(saved, trace, error):
    before = saved.read_bytes()

    def fail() -> None:
        with TraceWriter(saved) as file:
            file.write(trace)
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert saved.read_bytes() == before
    assert only(saved)


def test_a_refused_write_leaves_what_was_there(saved, trace, monkeypatch):
    before = saved.read_bytes()

    def full_disk(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.pq.ParquetWriter, "write_table", full_disk)
    with pytest.raises(StorageError, match="no space left on device") as caught:
        trace.save(saved)
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == before
    assert only(saved)


def test_a_disk_that_takes_only_part_of_a_file_ends_in_one_line(tmp_path):
    program = (
        "import resource, sys, numpy as np; from stickymoe.core.errors import StorageError;"
        "from stickymoe.traces import RoutingTrace;"
        "ids = np.argsort(np.random.default_rng(0).random((9000, 2, 8)), axis=-1)[..., :3];"
        "trace = RoutingTrace(ids, np.zeros(9000, dtype=int), 8);"
        "trace.save('small.parquet');"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: trace.save('small.parquet')\n"
        "except StorageError as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.count("\n") == 1
    assert found.stdout.startswith("could not write small.parquet")
    assert only(tmp_path / "small.parquet")
    assert RoutingTrace.load(tmp_path / "small.parquet").num_tokens == 9000


def test_a_path_that_cannot_be_written_is_one_line(saved, trace):
    with pytest.raises(StorageError, match="could not write") as caught:
        trace.save(saved / "below-a-file.parquet")
    assert "\n" not in str(caught.value)
