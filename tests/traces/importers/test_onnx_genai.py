"""onnx-genai traces: by the format's definition, lying ones, and one from a real model."""

import json

import pytest

from stickymoe.traces import DECODE, PREFILL, read_trace

DOCUMENT = {
    "model": "tiny",
    "num_layers": 2,
    "num_experts": 6,
    "top_k": 2,
    "prompts": {
        "prose": {"prompt_len": 2, "prefill": [[[0, 1], [2, 3]], [[4, 5], [0, 2]]], "decode": [[[1, 0], [3, 2]]]},
        "code": {"prompt_len": 1, "prefill": [[[3, 1], [2, 5]]], "decode": []},
    },
}


@pytest.fixture
def written(tmp_path):
    def write(document):
        path = tmp_path / "trace.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


def with_prompt(**parts):
    return DOCUMENT | {"prompts": {"prose": DOCUMENT["prompts"]["prose"] | parts}}


def test_prompts_become_sequences_with_phases_and_passes(written):
    trace = read_trace(written(DOCUMENT))
    assert trace.expert_ids.tolist() == [
        [[0, 1], [2, 3]],
        [[4, 5], [0, 2]],
        [[1, 0], [3, 2]],
        [[3, 1], [2, 5]],
    ]
    assert trace.sequence_ids.tolist() == [0, 0, 0, 1]
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE, PREFILL]
    assert trace.event_ids.tolist() == [0, 0, 1, 2]
    assert trace.positions.tolist() == [0, 1, 2, 0]
    assert trace.num_experts == 6
    assert trace.layer_names is None
    assert trace.provenance == {
        "model": "tiny",
        "sequences": ["prose", "code"],
        "num_experts_from": "declared",
        "events_from": "assumed: a prompt is one forward pass, each token after it one of its own",
        "format": "onnx-genai",
    }


def test_a_prompt_with_decode_alone_begins_at_its_length(written):
    trace = read_trace(written(with_prompt(prefill=[], prompt_len=7)))
    assert trace.positions.tolist() == [7]
    assert trace.phases.tolist() == [DECODE]


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ("", "found an empty file"),
        (json.dumps(DOCUMENT)[:-40], "line 1 must be JSON"),
        ("[" * 100_000, "not a readable onnx-genai file"),
        ([DOCUMENT], "'prompts' holds prompts by name"),
        (DOCUMENT | {"prompts": {}}, "'prompts' holds prompts by name"),
        (DOCUMENT | {"prompts": {"prose": 3}}, "prompt 'prose' must be an object, got int"),
        (DOCUMENT | {"num_layers": 3}, "num_layers declared, 3, got 2"),
        (DOCUMENT | {"top_k": 4}, "top_k declared, 4, got 2"),
        (DOCUMENT | {"num_experts": 4}, "below num_experts 4 (declared), got 5"),
        (DOCUMENT | {"num_experts": -1}, "num_experts must be a whole number >= 0, got -1"),
        (DOCUMENT | {"num_experts": 1e99}, "num_experts must be a whole number >= 0, got 1e+99"),
        (with_prompt(prompt_len=3), "prompt_len 3 positions, got 2"),
        (with_prompt(prefill=[], decode=[]), "found neither"),
        (with_prompt(decode=[[[0, 1]]]), "same layers and slots in prefill and decode, got (2, 2) and (1, 2)"),
        (with_prompt(decode=[[[0, 1], [2]]]), "decode[0][1] must have 2 entries as the first has, got 1"),
        (with_prompt(decode=[[[0, 1], [2, 3]], [[0, 1]]]), "decode[1] must have 2 entries"),
        (with_prompt(decode=[[[0, 1], 7]]), "decode[0][1] must be a list, got int"),
        (with_prompt(decode=[[[0, 1], [2, 2]]]), "2 twice at token 2, layer 1"),
        (with_prompt(decode=[[[0, 1], [2, -7]]]), ">= -1, got -7"),
        (with_prompt(decode=[[[0, 1], [2, 2.5]]]), "whole numbers, got a float"),
        (with_prompt(decode=[[[0, 1], [2, True]]]), "whole numbers, got a bool"),
        (with_prompt(decode=[[[0, 1], [2, "3"]]]), "whole numbers, got a str"),
        (with_prompt(decode=[[[0, 1], [2, 2**80]]]), "fit in 64 bits"),
        (with_prompt(decode=[[[0, 1], [2, None]]]), "whole numbers, got a NoneType"),
        (with_prompt(prefill="x" * 100), "prefill must be a list, got str"),
    ],
)
def test_a_document_that_breaks_a_rule_is_named(written, refused, document, rule):
    assert rule in refused(written(document), "onnx-genai")


def test_a_file_too_large_to_parse_is_refused_unread(written, refused):
    assert "max_bytes 1000" in refused(written(DOCUMENT), max_bytes=1000)


def test_a_real_trace_has_the_shape_and_accesses_that_its_authors_replayed(real):
    trace = read_trace(real("data/traces/onnx-genai/moe_expert_trace.json"))
    golden = json.loads(real("golden/public_traces.json").read_text())["onnx-genai"]["page_ins"]
    assert trace.expert_ids.shape == (39 + 44 + 29 + 3 * 64, 24, 8)
    assert trace.num_experts == 32
    names = trace.provenance["sequences"]
    for name, budgets in golden.items():
        decoded = trace.select(phase="decode", sequences=[names.index(name)])
        assert {row["accesses"] for row in budgets.values()} == {decoded.expert_ids.size}
        # No capacity hides a first use: at the largest budget whatever is left of page-ins is at least those
        blocks = {(layer, expert) for token in decoded.expert_ids for layer, ids in enumerate(token) for expert in ids}
        assert budgets["0.9"]["oracle"] >= len(blocks) - budgets["0.9"]["budget"]
