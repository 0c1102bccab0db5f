"""SGLang routed experts: bare base64 and responses, what can be derived of the shape, and lying files."""

import base64
import json

import numpy as np
import pytest

from stickymoe.traces import DECODE, PREFILL, read_trace
from stickymoe.traces.importers.importer import Head
from stickymoe.traces.importers.sglang import IMPORTER

# (tokens, layers, k): layer 0 is dense, one slot of layer 2 is empty
ROUTED = np.array(
    [
        [[-1, -1], [3, 1], [2, 0]],
        [[-1, -1], [3, 2], [-1, 1]],
        [[-1, -1], [1, 2], [0, 5]],
        [[-1, -1], [4, 2], [1, 5]],
    ],
    dtype="<i4",
)
WANTED = [[[3, 1], [2, 0]], [[3, 2], [1, -1]], [[1, 2], [0, 5]], [[4, 2], [1, 5]]]


def coded(array) -> str:
    return base64.b64encode(array.tobytes()).decode()


def reply(text, prompt=2, output=3, **meta):
    counts = {} if prompt is None else {"prompt_tokens": prompt, "completion_tokens": output}
    return {"text": "x", "meta_info": counts | {"routed_experts": text} | meta}


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "routed"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.mark.parametrize("content", [coded(ROUTED), coded(ROUTED) + "\n", json.dumps(coded(ROUTED))])
def test_bare_base64_needs_layers_and_slots(written, refused, content):
    trace = read_trace(written(content), num_layers=3, top_k=2, num_experts=8)
    assert trace.expert_ids.tolist() == WANTED
    assert trace.layer_names == ("1", "2")
    assert trace.num_experts == 8
    assert trace.phases is None
    assert trace.provenance == {"num_experts_from": "given", "format": "sglang"}
    for options in ({}, {"top_k": 2}, {"num_layers": 3}):
        message = refused(written(content), **options)
        assert "must be cut into layers and slots, got 24 ids; give num_layers" in message


@pytest.mark.parametrize("options", [{"num_layers": 3}, {"top_k": 2}, {"num_layers": 3, "top_k": 2}])
@pytest.mark.parametrize(
    "document",
    [
        reply(coded(ROUTED)),
        [reply(coded(ROUTED))],
        {"choices": [reply(coded(ROUTED))]},
        {"choices": [{}], "sglext": {"routed_experts": coded(ROUTED)}, "usage": reply("")["meta_info"]},
        {"choices": [{"sglext": {"routed_experts": coded(ROUTED)}}], "usage": reply("")["meta_info"]},
    ],
)
def test_a_response_tells_tokens_and_needs_one_of_layers_and_slots(written, document, options):
    trace = read_trace(written(document), **options)
    assert trace.expert_ids.tolist() == WANTED
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1, 2]
    assert trace.positions.tolist() == [0, 1, 2, 3]


def test_rows_from_a_position_on_end_at_the_last_token_fed_back(written):
    trace = read_trace(written(reply(coded(ROUTED), prompt=6, output=2)), num_layers=3, top_k=2)
    assert trace.positions.tolist() == [3, 4, 5, 6]
    assert trace.phases.tolist() == [0, 0, 0, 1]


def test_lines_and_choices_are_sequences(written):
    choices = [reply(coded(ROUTED[:2]), 1, 2), reply(coded(ROUTED), 2, 3)]
    lines = [reply(coded(ROUTED)), reply(None), {"choices": choices}]
    trace = read_trace(written("\n".join(map(json.dumps, lines))), top_k=2)
    assert trace.sequence_ids.tolist() == [0] * 4 + [1] * 2 + [2] * 4


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "found an empty file"),
        (coded(ROUTED)[:-5], "must be base64"),
        (coded(ROUTED)[:-4], "must hold int32 numbers, got 93 bytes"),
        (coded(ROUTED)[:-16], "rows of 3 layers of 2 slots, got 21 ids"),
        ("ab!d", "must be base64"),
        (coded(np.where(ROUTED == 5, -9, ROUTED)), ">= -1, got -9"),
        (coded(np.where(ROUTED == 5, 1, ROUTED)), "1 twice at token 3, layer 1"),
        (coded(np.full_like(ROUTED, -1)), "got only unassigned slots"),
        (reply(coded(ROUTED), 1, 2), "at most 2 rows, a token each, got 4"),
        (reply(coded(ROUTED), "2"), "prompt_tokens must be a whole number >= 0, got '2'"),
        (reply(ROUTED.tolist()), "must be base64 text, got list"),
        (reply(None), "of at least one request, found none"),
        ([3], "the document[0] must be an object, got int"),
        ({"choices": {}, "meta_info": 1}, "choices must be a list, got dict"),
        (json.dumps(reply(coded(ROUTED)))[:-9], "line 1 must be JSON"),
    ],
)
def test_a_file_that_breaks_a_rule_is_named(written, refused, content, rule):
    assert rule in refused(written(content), "sglang", num_layers=3, top_k=2)


def test_a_shape_that_does_not_divide_is_refused(written, refused):
    path = written(reply(coded(ROUTED)))
    assert "got 24 ids of 4 tokens" in refused(path, num_layers=5)
    assert "rows of 5 layers of 2 slots, got 24 ids" in refused(path, num_layers=5, top_k=2)
    assert "below num_experts 5 (given), got 5" in refused(path, top_k=2, num_experts=5)
    assert "max_bytes 100" in refused(path, top_k=2, max_bytes=100)
    assert "max_bytes 100" in refused(written(coded(ROUTED)), top_k=2, num_layers=3, max_bytes=100)


@pytest.mark.parametrize("cut", range(16))
def test_base64_cut_anywhere_is_still_known_by_its_head(written, cut):
    text = base64.b64encode(ROUTED.tobytes()[: 96 - cut]).decode()
    assert IMPORTER.matches(Head.of(written(text)))
    assert not IMPORTER.matches(Head.of(written("layer,expert\n0,1\n")))
    assert not IMPORTER.matches(Head.of(written("deadbeefdeadbeefdeadbeef")))
