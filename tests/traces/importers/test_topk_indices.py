"""Chosen experts as tensors: moe-cache-eval's shards and moe-lrc's int8 layers."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import read_trace

# (samples, layers, tokens, k): three tokens and two, padded with -1
IDS = np.array(
    [
        [[[0, 1], [1, 2], [2, 3]], [[4, 5], [5, 4], [0, 3]]],
        [[[3, 2], [1, 0], [-1, -1]], [[2, 5], [2, 4], [-1, -1]]],
    ],
    dtype=np.int16,
)
WEIGHTS = np.where(IDS >= 0, [0.75, 0.25], 0).astype(np.float16)
SHARD = {
    "topk_indices": IDS,
    "topk_weights": WEIGHTS,
    "sequence_lengths": np.array([3, 2], dtype=np.int32),
    "input_ids": np.array([[7, 8, 9], [5, 6, 0]], dtype=np.int32),
    "attention_mask": np.array([[1, 1, 1], [1, 1, 0]], dtype=bool),
    "router_logits": np.zeros((2, 2, 3, 40), dtype=np.float16),
    "router_entropy": np.full((2, 2, 3), np.nan, dtype=np.float16),
}
WANTED = [
    [[0, 1], [4, 5]],
    [[1, 2], [5, 4]],
    [[2, 3], [0, 3]],
    [[3, 2], [2, 5]],
    [[1, 0], [2, 4]],
]


@pytest.fixture
def written(tmp_path):
    def write(arrays):
        save_file(arrays, tmp_path / "routes-00000.safetensors")
        return tmp_path / "routes-00000.safetensors"

    return write


def test_a_shard_of_samples_is_read_without_padding(written):
    trace = read_trace(written(SHARD))
    assert trace.expert_ids.tolist() == WANTED
    assert trace.sequence_ids.tolist() == [0, 0, 0, 1, 1]
    assert trace.token_ids.tolist() == [7, 8, 9, 5, 6]
    assert trace.expert_weights.tolist() == [[[0.75, 0.25]] * 2] * 5
    assert trace.num_experts == 40
    assert trace.provenance == {"num_experts_from": "declared", "format": "topk-indices"}


def test_one_sequence_has_layers_in_front(written, tmp_path):
    one = {"topk_indices": np.ascontiguousarray(IDS[0])}
    trace = read_trace(written(one))
    assert trace.expert_ids.tolist() == WANTED[:3]
    assert trace.provenance["num_experts_from"] == "largest id + 1"
    np.savez(tmp_path / "one.npz", **one)
    assert read_trace(tmp_path / "one.npz") == trace


def test_int8_ids_of_one_layer_are_samples_and_may_have_wrapped(written, refused):
    data = {"math": np.array([[[1, 2], [2, 3]]], np.int8), "code": np.array([[[5, 4]], [[0, 1]]], np.int8)}
    with pytest.warns(TraceWarning, match="of more than 128 experts they would have wrapped"):
        trace = read_trace(written(data))
    assert trace.provenance["data"] == ["code", "math"]
    assert trace.expert_ids[:, 0].tolist() == [[5, 4], [0, 1], [1, 2], [2, 3]]
    assert trace.sequence_ids.tolist() == [0, 1, 2, 2]
    assert read_trace(written(data), num_experts=64).num_experts == 64
    assert "int8 wraps above 127" in refused(written(data), num_experts=256)
    wrapped = {"math": np.array([[[1, -56], [2, 3]]], np.int8)}
    assert "must be >= -1, got -56; ids above 127 wrap in int8" in refused(written(wrapped))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"topk_indices": IDS.astype(np.float32)}, "array 'topk_indices' must be shaped"),
        ({"topk_indices": IDS[0, 0]}, "array 'topk_indices' must be shaped"),
        ({"topk_indices": np.where(IDS == 5, 40, IDS)}, "below num_experts 40 (declared), got 40"),
        ({"topk_indices": np.where(IDS == 5, -4, IDS)}, "must be >= -1, got -4"),
        ({"topk_indices": np.where(IDS == 5, 4, IDS)}, "4 twice at token 0, layer 1"),
        ({"topk_weights": WEIGHTS[:1]}, "must have the shape of 'topk_indices'"),
        ({"topk_weights": np.where(IDS == 5, np.float16("nan"), WEIGHTS)}, "must be finite, got nan at [0, 1, 0, 1]"),
        ({"sequence_lengths": np.array([3, 9])}, "'sequence_lengths' must be from 0 to 3, got 3 to 9"),
        ({"sequence_lengths": np.array([3, 2, 1])}, "'sequence_lengths' must be shaped (2,), got (3,)"),
        ({"attention_mask": np.ones((2, 4), bool)}, "'attention_mask' must be shaped (2, 3), got (2, 4)"),
        ({"input_ids": np.ones((2, 3), np.float32)}, "'input_ids' must be whole numbers of 2 dimensions"),
    ],
)
def test_a_shard_that_breaks_a_rule_is_named(written, refused, changes, rule):
    assert rule in refused(written(SHARD | changes), "topk-indices")


def test_other_files_are_refused(written, refused, tmp_path):
    assert "found neither" in refused(written({"other": IDS}), "topk-indices")
    assert "max_bytes 300" in refused(written(SHARD), max_bytes=300)
    (tmp_path / "empty").touch()
    assert "got 0 in 0 bytes" in refused(tmp_path / "empty", "topk-indices")
