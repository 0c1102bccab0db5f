"""vLLM routed experts: every way people keep them, zero-filled layers and tokens, and lying files."""

import base64
import io
import json

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace

# (tokens, layers, k): layer 0 is dense, layers 1 and 2 route
ROUTED = np.array(
    [
        [[0, 0], [3, 1], [2, 0]],
        [[0, 0], [3, 2], [0, 1]],
        [[0, 0], [1, 2], [0, 5]],
        [[0, 0], [4, 2], [1, 5]],
    ],
    dtype=np.int32,
)
PADDED = np.concatenate([ROUTED, np.zeros_like(ROUTED[:1])])
WANTED = ROUTED[:, 1:].tolist()


def npy(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def coded(array) -> str:
    return base64.b64encode(npy(array)).decode()


def response(routed, **more):
    return {"object": "text_completion", "choices": [{"index": 0, "text": "x", "routed_experts": routed}]} | more


def usage(prompt, output):
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}}


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "routed"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content)
        else:
            path.write_text(json.dumps(content))
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        npy(ROUTED),
        npy(np.asfortranarray(ROUTED)),
        npy(ROUTED.astype(np.int16)),
        coded(ROUTED),
        coded(ROUTED) + "\n",
        json.dumps(coded(ROUTED)),
        response(coded(ROUTED)),
        response(ROUTED.tolist()),
        [response(coded(ROUTED))],
        json.dumps(response(coded(ROUTED))) + "\n" + json.dumps(response(None)) + "\n",
        {"routed_experts": coded(ROUTED)},
    ],
)
def test_every_way_of_keeping_the_array_gives_the_layers_that_route(written, content):
    trace = read_trace(written(content))
    assert trace.expert_ids.tolist() == WANTED
    assert trace.layer_names == ("1", "2")
    assert trace.positions.tolist() == [0, 1, 2, 3]
    assert trace.phases is None
    assert trace.provenance == {"num_experts_from": "largest id + 1", "format": "vllm"}
    assert trace.num_experts == 6


def test_the_number_of_experts_is_what_the_user_says(written):
    assert read_trace(written(npy(ROUTED)), num_experts=128).num_experts == 128


def test_a_prompt_length_given_splits_the_phases(written):
    trace = read_trace(written(npy(ROUTED)), prompt_tokens=2)
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("document", "positions", "phases"),
    [
        # two prompt tokens and three generated: the last of them was never fed back
        (response(coded(ROUTED)) | usage(2, 3), [0, 1, 2, 3], [0, 0, 1, 1]),
        # a row for the last one, never written
        (response(coded(PADDED)) | usage(2, 3), [0, 1, 2, 3], [0, 0, 1, 1]),
        # a row for the last one, written all the same
        (response(coded(ROUTED)) | usage(2, 2), [0, 1, 2, 3], [0, 0, 1, 1]),
        # rows from a position in the prompt on
        (response(coded(ROUTED)) | usage(6, 2), [3, 4, 5, 6], [0, 0, 0, 1]),
        # the prompt's rows apart, there or not
        (response(coded(ROUTED[3:]), prompt_routed_experts=ROUTED[:3].tolist()), [0, 1, 2, 3], [0, 0, 0, 1]),
        (response(coded(ROUTED), prompt_routed_experts=None) | usage(5, 4), [5, 6, 7, 8], [1, 1, 1, 1]),
    ],
)
def test_rows_are_laid_at_their_positions(written, document, positions, phases):
    trace = read_trace(written(document))
    assert trace.expert_ids.tolist() == WANTED
    assert trace.positions.tolist() == positions
    assert trace.phases.tolist() == phases


def test_token_ids_come_along(written, tmp_path):
    document = response(coded(ROUTED), prompt_token_ids=[7, 8])
    document["choices"][0]["token_ids"] = [9, 10, 11]
    assert read_trace(written(document)).token_ids.tolist() == [7, 8, 9, 10]
    arrays = {"prompt_token_ids": np.array([7, 8]), "output_token_ids": np.array([9, 10, 11])}
    np.savez(tmp_path / "request.npz", request_id=np.array("r1"), routed_experts=ROUTED, **arrays)
    trace = read_trace(tmp_path / "request.npz")
    assert trace.expert_ids.tolist() == WANTED
    assert trace.token_ids.tolist() == [7, 8, 9, 10]
    assert trace.phases.tolist() == [0, 0, 1, 1]


def test_choices_and_lines_are_sequences(written):
    two = response(coded(ROUTED[:2])) | usage(2, 9)
    two["choices"].append({"index": 1, "routed_experts": ROUTED[2:].tolist()})
    trace = read_trace(written(json.dumps(two) + "\n" + json.dumps(response(coded(ROUTED[:1])))))
    assert trace.sequence_ids.tolist() == [0, 0, 1, 1, 2]
    assert trace.positions.tolist() == [0, 1, 0, 1, 0]


def test_a_token_never_captured_is_warned_of(written):
    gap = np.concatenate([ROUTED[:1], np.zeros_like(ROUTED[:1]), ROUTED[1:]])
    with pytest.warns(TraceWarning, match="1 of 5 tokens are routed in no layer"):
        trace = read_trace(written(npy(gap)))
    assert trace.expert_ids[1].tolist() == [[-1, -1], [-1, -1]]


def test_with_one_slot_a_layer_of_zeros_is_warned_of(written):
    with pytest.warns(TraceWarning, match="layers 0 send every token to expert 0"):
        trace = read_trace(written(npy(ROUTED[:, :, :1])))
    assert trace.num_layers == 3


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "found an empty file"),
        (npy(ROUTED)[:-3], "must hold 96 bytes for shape (4, 3, 2) of int32, found 93"),
        (npy(ROUTED) + b"\0", "found 97"),
        (npy(ROUTED)[:40], "a header that is none"),
        (npy(np.array([ROUTED], dtype=object)), "only unpickling opens"),
        (npy(np.array({"x": 1})), "only unpickling opens"),
        (npy(ROUTED[0]), "shaped (tokens, layers, top_k), got shape (3, 2)"),
        (npy(ROUTED.astype(float)), "whole numbers, got float64"),
        (npy(ROUTED[:0]), "at least one token, got none"),
        (npy(ROUTED[:, :0]), "num_layers >= 1, got 0"),
        (npy(np.zeros_like(ROUTED)), "at least one token, got none"),
        (npy(np.where(ROUTED == 5, -9, ROUTED)), ">= -1, got -9"),
        (npy(np.where(ROUTED == 5, 1, ROUTED)), "1 twice at token 3, layer 1"),
        (coded(ROUTED)[:-3], "must be base64"),
        (coded(ROUTED)[:-4], "found 9"),
        (coded(ROUTED)[:60] + "!" + coded(ROUTED)[60:], "must be base64"),
        (response(None), "of at least one request, found none"),
        ({"choices": 3, "routed_experts": 0}, "choices must be a list, got int"),
        ({"choices": [3], "prompt_routed_experts": None}, "the document choice 0 must be an object, got int"),
        (response("x"), "must be base64"),
        (response("k05VTVBZ"), "a header that is none"),
        (response([[[1, 2], [3]]]), "routed_experts[0][1] must have 2 entries"),
        (response([[[1, 2], [3, 4.0]]]), "whole numbers, got a float"),
        (response(coded(ROUTED)) | usage(2, 1), "at most a row a token of 2 and 1"),
        (response(coded(ROUTED)) | usage(-2, 1), "prompt_tokens must be a whole number >= 0, got -2"),
        (response(coded(ROUTED), prompt_token_ids="abc"), "prompt_token_ids must be a list, got str"),
        (response(coded(ROUTED), prompt_routed_experts=[[[1, 2]]]), "the same layers and slots in prompt and output"),
        ([response(coded(ROUTED)), response(coded(ROUTED[:, 1:]))], "the layers and slots of the document[0] choice 0"),
        (json.dumps(response(coded(ROUTED))) + "\n{", "line 2 must be JSON"),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(written, refused, content, rule):
    assert rule in refused(written(content), "vllm")


def test_what_the_user_says_must_agree(written, refused):
    path = written(response(coded(ROUTED)) | usage(2, 3))
    assert "num_layers 4, got 3" in refused(path, num_layers=4)
    assert "below num_experts 4 (given), got 5" in refused(path, num_experts=4)
    assert "2 in the file against prompt_tokens 3" in refused(path, prompt_tokens=3)
    assert "max_bytes 100" in refused(path, max_bytes=100)
    assert "max_bytes 90" in refused(written(npy(ROUTED)), max_bytes=90)


def test_an_archive_of_requests_that_breaks_a_rule_is_named(tmp_path, refused):
    path = tmp_path / "request.npz"
    for arrays, rule in (
        ({"routed_experts": np.array(None)}, "only unpickling opens"),
        ({"routed_experts": ROUTED, "prompt_token_ids": np.ones((1, 2), int)}, "one row of whole numbers"),
        ({"prompt_token_ids": np.arange(3)}, "an array 'routed_experts', found none"),
        ({"routed_experts": ROUTED.astype(np.float32)}, "whole numbers, got float32"),
    ):
        np.savez(path, **arrays)
        assert rule in refused(path, "vllm")
