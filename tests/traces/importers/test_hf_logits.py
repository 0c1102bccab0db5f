"""Router logits: stacked or by layer, in batches, under each rule, compared with a loop; and files that lie."""

import io
import json
import math
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save_file

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import read_trace

LAYERS, TOKENS, EXPERTS, K = 3, 5, 6, 2
LOGITS = np.random.default_rng(0).normal(size=(LAYERS, TOKENS, EXPERTS)).astype(np.float32)
HIT = np.arange(LOGITS.size).reshape(LOGITS.shape) == np.ravel_multi_index((1, 2, 3), LOGITS.shape)
RULE = {"top_k": K, "selection": "softmax-topk"}


def chosen(logits, selection):
    """Return ids and weights of one token by the definition."""
    logits = [float(logit) for logit in logits]
    if selection.startswith("softmax"):
        scores = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
    else:
        scores = [1 / (1 + math.exp(-logit)) for logit in logits]
    ids = sorted(range(EXPERTS), key=lambda expert: (-scores[expert], expert))[:K]
    weights = [scores[expert] for expert in ids]
    return ids, [weight / sum(weights) for weight in weights] if selection.endswith("norm") else weights


@pytest.fixture
def written(tmp_path):
    def write(arrays, suffix="npz"):
        path = tmp_path / f"logits.{suffix}"
        if suffix == "npz":
            np.savez_compressed(path, **arrays)
        else:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
        return path

    return write


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize("selection", ["softmax-topk", "softmax-topk-norm", "sigmoid-topk", "sigmoid-topk-norm"])
def test_experts_are_chosen_by_the_rule_given(written, suffix, selection):
    trace = read_trace(written({"router_logits": LOGITS}, suffix), top_k=K, selection=selection)
    assert (trace.num_experts, trace.num_sequences, trace.layer_names) == (EXPERTS, 1, None)
    for token in range(TOKENS):
        for layer in range(LAYERS):
            ids, weights = chosen(LOGITS[layer, token], selection)
            assert trace.expert_ids[token, layer].tolist() == ids
            assert trace.expert_weights[token, layer].tolist() == pytest.approx(weights, rel=1e-5)
    assert trace.provenance == {"selection": selection, "num_experts_from": "declared", "format": "hf-logits"}


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_layers_apart_keep_their_numbers(written, suffix):
    names = ["model.layers.10.gate", "model.layers.2.gate", "model.layers.7.gate"]
    trace = read_trace(written(dict(zip(names, LOGITS, strict=True)), suffix), **RULE)
    whole = read_trace(written({"router_logits": LOGITS}), **RULE)
    assert trace.layer_names == ("2", "7", "10")
    assert trace.expert_ids.tolist() == whole.expert_ids[:, [1, 2, 0]].tolist()


def test_positional_arrays_of_savez_are_layers_when_the_format_is_named(tmp_path):
    np.savez(tmp_path / "logits.npz", *LOGITS)
    trace = read_trace(tmp_path / "logits.npz", "hf-logits", **RULE)
    assert trace.layer_names is None
    assert trace.num_layers == LAYERS


MASK = np.array([[1, 1, 1], [0, 1, 1]])
BATCH = np.random.default_rng(1).normal(size=(2, LAYERS, 3, EXPERTS)).astype(np.float16)


@pytest.mark.parametrize(
    "arrays",
    [
        {"router_logits": BATCH},
        {"router_logits": BATCH.swapaxes(0, 1)},
        {"router_logits": BATCH.swapaxes(0, 1).reshape(LAYERS, 6, EXPERTS)},
        {f"gate_{layer}": BATCH[:, layer] for layer in range(LAYERS)},
        {f"gate_{layer}": BATCH[:, layer].reshape(6, EXPERTS) for layer in range(LAYERS)},
    ],
)
def test_padded_batches_become_sequences_without_padding(written, arrays):
    token_ids = np.array([[5, 6, 7], [0, 8, 9]])
    trace = read_trace(written(arrays | {"attention_mask": MASK, "input_ids": token_ids}), **RULE)
    assert trace.sequence_ids.tolist() == [0, 0, 0, 1, 1]
    assert trace.token_ids.tolist() == [5, 6, 7, 8, 9]
    assert trace.positions.tolist() == [0, 1, 2, 0, 1]
    for row, (sample, token) in enumerate([(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]):
        for layer in range(LAYERS):
            assert trace.expert_ids[row, layer].tolist() == chosen(BATCH[sample, layer, token], "softmax-topk")[0]


def safetensors(path, header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_bfloat16_is_the_upper_half_of_a_float(tmp_path):
    data = (LOGITS.view(np.uint32) >> 16).astype("<u2")
    entry = {"dtype": "BF16", "shape": list(LOGITS.shape), "data_offsets": [0, data.nbytes]}
    path = safetensors(tmp_path / "x", {"__metadata__": {"a": "b"}, "router_logits": entry}, data.tobytes())
    trace = read_trace(path, **RULE)
    cut = (data.astype(np.uint32) << 16).view(np.float32)
    assert trace.expert_ids[0, 0].tolist() == chosen(cut[0, 0], "softmax-topk")[0]


def test_k_and_rule_must_be_given_and_fit(written, refused):
    path = written({"router_logits": LOGITS})
    assert "got no selection" in refused(path, top_k=2)
    assert "got no top_k" in refused(path, selection="softmax-topk")
    assert "top_k must be <= the 6 experts of the logits, got 7" in refused(path, selection="softmax-topk", top_k=7)
    assert "against 6 in the file" in refused(path, num_experts=8, **RULE)
    assert "num_layers 4, got 3" in refused(path, num_layers=4, **RULE)
    assert "max_bytes 100" in refused(path, max_bytes=100, **RULE)
    with pytest.raises(SettingError, match=r"selection must be one of .*did you mean 'softmax-topk'"):
        read_trace(path, top_k=2, selection="softmax_topk")


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"router_logits": np.where(HIT, np.nan, LOGITS)}, "layer 1 logits must be finite"),
        ({"router_logits": np.where(HIT, np.inf, LOGITS)}, "inf at token 2, expert 3"),
        ({"router_logits": LOGITS.astype(np.float64) * 1e300}, "must be finite in float32"),
        ({"router_logits": LOGITS.astype(int)}, "must be floating point"),
        ({"router_logits": LOGITS[0, 0]}, "(layers, tokens, experts)"),
        ({"router_logits": LOGITS[:, :0]}, "(layers, tokens, experts)"),
        ({"router_logits": BATCH}, "needs attention_mask, input_ids or sequence_lengths beside it"),
        ({"router_logits": BATCH[:, :2], "attention_mask": MASK}, "to tell samples from layers"),
        ({"router_logits": BATCH, "attention_mask": MASK[:, :2]}, "'attention_mask' must be shaped (2, 3), got (2, 2)"),
        ({"router_logits": BATCH, "attention_mask": MASK * 0}, "at least one token that is not padding"),
        ({"router_logits": BATCH, "attention_mask": MASK * 1.0}, "'attention_mask' must be whole numbers"),
        ({"router_logits": BATCH, "sequence_lengths": np.array([3, 4])}, "'sequence_lengths' must be from 0 to 3"),
        ({"router_logits": LOGITS, "attention_mask": MASK}, "samples times tokens of (2, 3), got 5 rows"),
        ({"router_logits": LOGITS, "sequence_lengths": np.array([2, 2])}, "each of 2 samples, got 5 rows"),
        ({"gate_0": LOGITS[0], "gate_1": LOGITS[0, :4]}, "'gate_1' must be floating point (tokens, experts)"),
        ({"gate_0": LOGITS[0], "gate_1": LOGITS[0].astype(int)}, "'gate_1' must be floating point (tokens, experts)"),
        ({"gate_0": LOGITS[0], "gate_00": LOGITS[0]}, "a number each, the layer's"),
        ({"gate": LOGITS[0]}, "an array a layer named by its number, found neither"),
        ({"router_logits": np.array(None)}, "must be floating point"),
    ],
)
def test_arrays_that_break_a_rule_are_named(written, refused, arrays, rule):
    assert rule in refused(written(arrays), "hf-logits", **RULE)


ENTRY = {"dtype": "F32", "shape": [1, 1, 2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        (b"", "begin with the length of its header"),
        (b"{", "begin with the length of its header"),
        (b"{{", "the header must be JSON"),
        (b"\xff\xff", "the header must be JSON"),
        (b"[]", "must be a JSON object, got list"),
        ({"router_logits": 3}, "must tell dtype, shape and data_offsets"),
        ({"router_logits": ENTRY | {"dtype": 1}}, "must tell dtype, shape and data_offsets"),
        ({"router_logits": ENTRY | {"dtype": "F8_E4M3"}}, "must be floating point"),
        ({"router_logits": ENTRY | {"shape": [-1, 2, 3]}}, "a shape of whole numbers"),
        ({"router_logits": ENTRY | {"shape": "big"}}, "a shape of whole numbers"),
        ({"router_logits": ENTRY | {"shape": [10**9, 10**9, 64]}}, "and be 256000000000000000000 long"),
        ({"router_logits": ENTRY | {"data_offsets": [8, 16]}}, "must lie in the 8 bytes of the file"),
        ({"router_logits": ENTRY | {"data_offsets": [8, 0]}}, "must lie in the 8 bytes of the file"),
        ({"router_logits": ENTRY | {"data_offsets": [0]}}, "must lie in the 8 bytes of the file"),
        ({"router_logits": ENTRY | {"data_offsets": [0, 2**70]}}, "a data_offsets of whole numbers"),
    ],
)
def test_a_safetensors_header_that_lies_is_refused_before_memory_is_taken(tmp_path, refused, header, rule):
    path = safetensors(tmp_path / "bad.safetensors", header, b"\0" * 8 if isinstance(header, dict) else b"")
    assert rule in refused(path, "hf-logits", **RULE)


def test_an_empty_or_cut_file_is_refused(tmp_path, refused, written):
    whole = written({"router_logits": LOGITS}, "safetensors").read_bytes()
    for length, rule in ((0, "got 0 in 0 bytes"), (5, "got 0 in 5"), (20, "in 20 bytes"), (-4, "must lie in the")):
        data = whole[:length]
        (tmp_path / "cut").write_bytes(data)
        assert rule in refused(tmp_path / "cut", "hf-logits", **RULE)
    packed = written({"router_logits": LOGITS}).read_bytes()
    for cut in (30, len(packed) // 2, len(packed) - 9):
        (tmp_path / "cut").write_bytes(packed[:cut])
        refused(tmp_path / "cut", "hf-logits", **RULE)


@pytest.mark.parametrize("shape", [(2**31, 3, EXPERTS), (2**26, 1, EXPERTS), (1, 2**26, 1, EXPERTS)])
def test_a_head_that_claims_layers_that_are_not_there_costs_nothing(tmp_path, shape):
    path = tmp_path / "logits.npz"
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("router_logits.npy", head.getvalue() + bytes(100))
    tracemalloc.start()
    with pytest.raises(TraceError):
        read_trace(path, **RULE)
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
