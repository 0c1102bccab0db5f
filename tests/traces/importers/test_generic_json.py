"""Home-made JSON documents are read as lines of the same records would be."""

import json

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.traces import read_trace
from stickymoe.traces.importers import generic_json

IDS = np.argsort(default_rng(0).random((40, 2, 16)), axis=-1)[..., :3]
ATLAS = [
    {"layer": layer, "token_idx": token, "expert_idx": expert, "gate_weight": 1 - slot / 4}
    for token in range(40)
    for layer in range(2)
    for slot, expert in enumerate(IDS[token, layer].tolist())
]
RECORDS = [
    {"token": token, "layer": layer, "experts": IDS[token, layer].tolist()} for token in range(40) for layer in range(2)
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "document",
    [
        ATLAS,
        RECORDS,
        {"trace": RECORDS},
        {"model_name": "m", "num_experts": 16, "activations": ATLAS, "tokens": ["a"], "extra": {"x": [{"y": 1}]}},
        {"activations": RECORDS * 1, "notes": [{"token": "the"}]},
    ],
)
def test_a_list_of_records_is_found_wherever_it_stands(tmp_path, monkeypatch, indent, document):
    monkeypatch.setattr(generic_json, "BLOCK_RECORDS", 7)
    (tmp_path / "t").write_text(json.dumps(document, indent=indent))
    trace = read_trace(tmp_path / "t")
    assert trace.provenance["format"] == "json"
    assert np.array_equal(trace.expert_ids, IDS)
    declared = isinstance(document, dict) and "num_experts" in document
    assert trace.provenance["num_experts_from"] == ("declared" if declared else "largest id + 1")
    assert trace.provenance.get("model") == ("m" if declared else None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3", "must be a list of records or an object that holds one, got int"),
        ("[]", "must hold one list of records of routing, got none"),
        ('{"a": [{"x": 1}]}', "must hold one list of records of routing, got none"),
        (json.dumps({"a": RECORDS, "b": RECORDS}), "must hold one list of records of routing, got a, b"),
        (json.dumps([*RECORDS[:2], {"token": 1, "layer": 1, "experts": "x"}]), "experts must be a list of whole"),
        (json.dumps([*RECORDS, {"layer": 1}]), "record 81 must name its"),
        (json.dumps([*RECORDS, 1]), "must hold one list of records of routing, got none"),
        (json.dumps(RECORDS)[:-3], "must be JSON"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(tmp_path, refused, text, words):
    (tmp_path / "t").write_text(text)
    assert words in refused(tmp_path / "t", format="json")
