"""imatrix.gguf: counts of experts by layer out of GGUF files written by the format's definition, and lying ones."""

import struct

import numpy as np
import pytest

from stickymoe.traces import UsageProfile, read_trace

KINDS = {str: 8, int: 4, list: 9}
COUNTS = {
    "blk.1.ffn_down_exps.weight.counts": [5, 0, 7],
    "blk.1.ffn_gate_exps.weight.counts": [5, 0, 7],
    "blk.10.ffn_gate_up_exps.weight.counts": [1, 2, 3],
    "blk.1.attn_q.weight.counts": [512],
}
KEYS = {
    "general.type": "imatrix",
    "imatrix.datasets": ["wiki.txt", "code.txt"],
    "imatrix.chunk_count": 80,
    "imatrix.chunk_size": 512,
}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def value_of(value):
    if isinstance(value, list):
        return struct.pack("<IQ", 8, len(value)) + b"".join(map(text, value))
    return text(value) if isinstance(value, str) else struct.pack("<I", value)


def gguf(counts=COUNTS, keys=KEYS, version=3, alignment=32, num_tensors=None, num_keys=None, kind=0, extra=b""):
    tensors = {}
    for name, values in counts.items():  # each has sums beside it, much larger, that nobody reads
        tensors[name.replace(".counts", ".in_sum2")] = np.ones((len(values), 4), "<f4")
        tensors[name] = np.asarray(values, "<f4").reshape(-1, 1)
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    for name, value in keys.items():
        head += text(name) + struct.pack("<I", KINDS[type(value)]) + value_of(value)
    head += extra
    offset, data = 0, b""
    for name, values in tensors.items():
        head += text(name) + struct.pack("<IQQIQ", 2, values.shape[1], values.shape[0], kind, offset)
        data += values.tobytes() + b"\0" * (-values.nbytes % alignment)
        offset = len(data)
    return head + b"\0" * (-len(head) % alignment) + data


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / "imatrix.gguf"
        path.write_bytes(data)
        return path

    return write


def test_counts_of_every_layer_of_experts_are_read(written):
    profile = read_trace(written(gguf()))
    assert isinstance(profile, UsageProfile)
    assert profile.counts.tolist() == [[5, 0, 7], [1, 2, 3]]
    assert profile.layer_names == ("1", "10")
    assert profile.provenance == {
        "format": "imatrix",
        "num_experts_from": "declared",
        "datasets": ["wiki.txt", "code.txt"],
        "chunks": 80,
        "chunk_tokens": 512,
    }


def test_version_2_and_another_alignment_read_the_same(written):
    keys = {"general.alignment": 64} | KEYS
    assert read_trace(written(gguf(keys=keys, version=2, alignment=64))) == read_trace(written(gguf()))


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"GGUF", "must lie in the file of 4"),
        (gguf(version=1), "version 2 or 3, got 1"),
        (gguf(version=3 << 24), "big-endian"),
        (gguf(num_tensors=2**60), "must lie in the file"),
        (gguf(num_keys=2**60), "must lie in the file"),
        (gguf()[:200], "cut"),
        (gguf()[:-200], "cut short"),
        (gguf(kind=1), "must be float32 (type 0), got type 1"),
        (gguf(keys=KEYS | {"general.type": "model"}), "general.type must be 'imatrix', got 'model'"),
        (gguf(keys=KEYS | {"general.alignment": 0}), "general.alignment must be"),
        (gguf(counts={"blk.1.attn_q.weight.counts": [1]}), "a dense model"),
        (gguf(counts=COUNTS | {"blk.1.ffn_gate_exps.weight.counts": [5, 1, 7]}), "must count what"),
        (gguf(counts=COUNTS | {"blk.10.ffn_gate_up_exps.weight.counts": [1, 2]}), "as many experts as the others"),
        (gguf(counts={"blk.1.ffn_up_exps.weight.counts": [1, float("nan")]}), "layer 1, expert 1 must have a count"),
        (gguf(counts={"blk.1.ffn_up_exps.weight.counts": [1, -4]}), "got -4"),
        (gguf(counts={"blk.1.ffn_up_exps.weight.counts": [0, 0]}), "only zeros"),
        (gguf(num_keys=5, extra=text("k") + struct.pack("<I", 99)), "of a GGUF type, got type 99"),
        (gguf(num_keys=5, extra=text("k") + struct.pack("<IIQ", 9, 9, 1)), "got type 9"),
        (gguf(num_keys=5, extra=text("k") + struct.pack("<IIQ", 9, 4, 2**62)), "key 'k' must lie in the file"),
        (gguf(num_keys=5, extra=text("k") + struct.pack("<IIQ", 9, 8, 2**62)), "key 'k' must lie in the file"),
        (gguf(num_keys=5, extra=struct.pack("<Q", 2**63)), "must be at most"),
    ],
)  # fmt: skip
def test_a_lying_or_cut_file_is_refused_in_one_line(written, refused, data, rule):
    assert rule in refused(written(data), "imatrix")


def test_lists_of_numbers_are_passed_over(written):
    extra = text("k") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
    assert read_trace(written(gguf(num_keys=5, extra=extra))) == read_trace(written(gguf()))


def test_a_model_is_not_taken_for_an_imatrix(written, refused):
    refused(written(gguf(keys={"general.type": "model"})))
