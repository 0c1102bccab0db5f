"""npz traces: by the format's definition, lying archives, and three from real models."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import read_trace

# (layers, tokens, k)
EXPERTS = np.array([[[0, 1], [2, 3], [1, 0]], [[5, 4], [3, 2], [1, 5]]], dtype=np.int16)
META = {"model": "tiny", "top_k": 2, "k": 2, "num_experts": 6, "n_moe_layers": 2, "source": "test"}


@pytest.fixture
def written(tmp_path):
    def write(meta=META, experts=EXPERTS, save=np.savez_compressed, **more):
        path = tmp_path / "trace.npz"
        if meta is not None:
            more["meta"] = np.array(meta if isinstance(meta, str) else json.dumps(meta))
        save(path, experts=experts, **more)
        return path

    return write


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_layers_first_becomes_tokens_first(written, save):
    trace = read_trace(written(save=save))
    assert trace.expert_ids.tolist() == EXPERTS.transpose(1, 0, 2).tolist()
    assert trace.num_experts == 6
    assert trace.num_sequences == 1
    assert trace.provenance == META | {
        "num_experts_from": "declared",
        "sequences_from": "nothing: one sequence",
        "format": "npz",
    }


def test_a_context_cleared_every_two_tokens_is_a_sequence_every_two_tokens(written):
    for trace in (read_trace(written(META | {"chunk_tokens": 2})), read_trace(written(), chunk_tokens=2)):
        assert trace.sequence_ids.tolist() == [0, 0, 1]


def test_without_meta_the_experts_are_counted(written):
    trace = read_trace(written(meta=None))
    assert (trace.num_experts, trace.provenance["num_experts_from"]) == (6, "largest id + 1")
    assert read_trace(written(meta=None), num_experts=64).num_experts == 64


def test_weights_and_columns_come_along(written):
    weights = np.array([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], [[0.6, 0.4]] * 3], dtype=np.float32)
    trace = read_trace(written(weights=weights, token_ids=np.arange(3), sequence_ids=np.array([7, 7, 3])))
    assert trace.expert_ids[1].tolist() == [[3, 2], [3, 2]]
    assert trace.expert_weights[1, 0].tolist() == pytest.approx([0.8, 0.2])
    assert trace.token_ids.tolist() == [0, 1, 2]
    assert trace.sequence_ids.tolist() == [7, 7, 3]


def test_layers_that_route_nothing_are_left_out_and_empty_slots_go_last(written):
    experts = np.stack([np.full((3, 2), -1), [[1, 0], [-1, 3], [2, -1]]]).astype(np.int16)
    trace = read_trace(written(experts=experts))
    assert trace.layer_names == ("1",)
    assert trace.expert_ids[:, 0].tolist() == [[1, 0], [3, -1], [2, -1]]


def test_ids_in_eight_bits_are_refused_or_warned_of(written, refused):
    narrow = EXPERTS.astype(np.int8)
    assert "int8 wraps above 127" in refused(written(META | {"num_experts": 256}, narrow))
    assert "ids above 127 wrap in int8" in refused(written(experts=np.where(narrow == 5, -56, narrow)))
    with pytest.warns(TraceWarning, match="more than 128 experts they would have wrapped"):
        assert read_trace(written(None, narrow)).num_experts == 6
    assert read_trace(written(experts=narrow)).num_experts == 6


@pytest.mark.parametrize(
    ("meta", "experts", "rule"),
    [
        (META, EXPERTS[0], "shaped (layers, tokens, k)"),
        (META, EXPERTS[:, :0], "at least one of each"),
        (META, EXPERTS.astype(float), "must be whole numbers"),
        (META, np.where(EXPERTS == 5, 6, EXPERTS), "below num_experts 6 (declared), got 6"),
        (META, np.where(EXPERTS == 5, -3, EXPERTS), "must be >= -1, got -3"),
        (META, np.where(EXPERTS == 5, 4, EXPERTS), "4 twice at token 0, layer 1"),
        (META | {"k": 3}, EXPERTS, "must have k 3, got shape (2, 3, 2)"),
        (META | {"n_moe_layers": 5}, EXPERTS, "must have n_moe_layers 5"),
        (META | {"num_experts": "6"}, EXPERTS, "meta: num_experts must be a whole number"),
        (META | {"chunk": 0}, EXPERTS, "meta.chunk must be >= 1, got 0"),
        (META | {"chunk": 4, "chunk_size": 5}, EXPERTS, "chunks must be of one length"),
        ("{", EXPERTS, "array 'meta' must be JSON"),
        ("[]", EXPERTS, "'meta' must be a JSON object, got list"),
        (META, np.array(None), "only unpickling opens"),
    ],
)
def test_an_archive_that_breaks_a_rule_is_named(written, refused, meta, experts, rule):
    assert rule in refused(written(meta, experts))


def test_weights_that_are_nan_or_misshapen_are_refused(written, refused):
    assert "must be finite" in refused(written(weights=np.full(EXPERTS.shape, np.nan)))
    assert "of the shape of 'experts'" in refused(written(weights=np.ones((1, 3, 2))))


def archive(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def npy(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("{'descr': '<i2', 'fortran_order': False, 'shape': (9999999999, 9, 9999)}", "found 24; it is cut or lies"),
        ("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3, 1)}", "must hold 12 bytes"),
        ("{'descr': '<i2', 'fortran_order': False, 'shape': (-2, 3, 2)}", "shape of whole numbers >= 0"),
        ("{'descr': '<i2', 'fortran_order': False, 'shape': (True, 3, 2)}", "shape of whole numbers >= 0"),
        ("{'descr': '<i2', 'fortran_order': False, 'shape': 'x'}", "a header that is none"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "only unpickling opens"),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (9,)}", "an array of numbers or text"),
        ("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (12,)}", "an array of numbers or text"),
        ("(" * 5000, "a header that is none"),
        ("9" * 9000, "a header that is none"),
    ],
)
def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path, refused, header, rule):
    lying = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + EXPERTS.tobytes()
    assert rule in refused(archive(tmp_path / "lying.npz", {"experts.npy": lying}))


def test_a_bomb_and_a_damaged_archive_are_refused(tmp_path, refused, written):
    zeros = npy(np.zeros((1, 2**20, 2), dtype=np.int64))
    bomb = archive(tmp_path / "bomb.npz", {"experts.npy": zeros}, zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2**16
    assert "max_bytes 1000000" in refused(bomb, max_bytes=1_000_000)
    whole = written().read_bytes()
    for name, data in {
        "empty": b"",
        "cut": whole[:-30],
        "half": whole[: len(whole) // 2],
        "flipped": whole[:60] + b"\xff" * 8 + whole[68:],
    }.items():
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name, "npz")
    assert "found none" in refused(archive(tmp_path / "other.npz", {"experts.txt": "1"}), "npz")
    assert "a header that is none" in refused(archive(tmp_path / "text.npz", {"experts.npy": "1,2"}))


@pytest.mark.parametrize(
    ("name", "shape", "experts"),
    [
        ("qwen3-30b-a3b/code", (8000, 48, 8), 128),
        ("qwen3-30b-a3b/general", (8000, 48, 8), 128),
        ("cacheable-by-design/a-main-s1/trace_prose", (499712, 8, 2), 16),
        ("cacheable-by-design/b-main-s1/trace_prose", (499712, 8, 2), 16),
    ],
)
def test_a_real_archive_is_read_whole(real, name, shape, experts):
    path = real(f"data/traces/{name}.npz")
    trace = read_trace(path)
    assert trace.expert_ids.shape == shape
    assert trace.num_experts == experts
    assert np.array_equal(trace.expert_ids, np.load(path)["experts"].transpose(1, 0, 2))


@pytest.mark.parametrize("model", ["a-main-s1", "b-main-s1"])
def test_real_neighbours_share_as_many_experts_as_their_authors_say(real, model):
    trace = read_trace(real(f"data/traces/cacheable-by-design/{model}/trace_prose.npz"))
    golden = json.loads(real("golden/public_traces.json").read_text())["cacheable-by-design"]["published"]
    ids = trace.expert_ids
    shared = (ids[1:, :, :, None] == ids[:-1, :, None, :]).any(axis=3).mean()
    assert shared == pytest.approx(golden[model]["prose"]["reuse_lag1"], abs=5e-4)
