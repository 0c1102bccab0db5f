"""Home-made JSON lines: many names, either order, appended runs, and nothing taken for what it is not."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, RoutingTrace, read_trace
from stickymoe.traces.importers import generic_jsonl

REUSED_FOLDER = [HealthCheck.function_scoped_fixture]


@pytest.fixture
def written(tmp_path: Path):
    def write(records: list[Any], name: str = "trace.jsonl") -> Path:
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return tmp_path / name

    return write


def ids_of(trace: RoutingTrace) -> list[list[list[int]]]:
    return trace.expert_ids.tolist()


def records_of(ids: np.ndarray, layer_major: bool = False, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Make one record a (token, layer), in either order."""
    tokens, layers = ids.shape[:2]
    order = [(token, layer) for token in range(tokens) for layer in range(layers)]
    if layer_major:
        order.sort(key=lambda pair: pair[1])
    return [
        {"token": first + token, "layer": layer, "experts": ids[token, layer].tolist()} | more for token, layer in order
    ]


def random_ids(tokens: int, layers: int, top_k: int, num_experts: int = 16, seed: int = 0) -> np.ndarray:
    return np.argsort(default_rng(seed).random((tokens, layers, num_experts)), axis=-1)[..., :top_k]


FLAVOURS = {
    "lattice": [
        {"layer_idx": 3, "token_idx": 17, "selected_ids": [4, 91], "gate_weights": [0.75, 0.25], "extra": {"a": []}}
    ],
    "mer": [
        {
            "token": 17,
            "layer": 3,
            "experts": [4, 91],
            "cache_hit": [True, False],
            "predicted": [1, 2],
            "weights": [0.75, 0.25],
        }
    ],
    "router event": [
        {"token": 17, "layer": 3, "experts": [4, 91], "phase": "decode", "domain": "code", "weights": [0.75, 0.25]}
    ],
    "vllm patch": [
        {"type": "meta", "model_id": "m", "layers_logged": [3], "top_k": 2, "num_experts": 128},
        {
            "type": "route",
            "req_id": "r-1",
            "token_idx": 17,
            "layer": 3,
            "topk_ids": [4, 91],
            "topk_weights": [0.75, 0.25],
        },
    ],
    "moe-policylang": [
        {
            "model_name": "m",
            "num_layers": 1,
            "num_experts": 128,
            "top_k": 2,
            "num_entries": 1,
            "records_full_softmax": False,
        },
        {"p": 0, "t": 17, "l": 3, "e": [4, 91], "s": [0.75, 0.25], "ph": "decode", "ti": 9, "kv": None},
    ],
    "moe-cache-lab": [
        {"record_type": "metadata", "format": "moe-cache-lab.routing-jsonl", "format_version": 1, "model_id": "m"},
        {
            "record_type": "routing_selection",
            "phase": "generated",
            "token_position": 17,
            "layer": 3,
            "selected_experts": [4, 91],
            "selected_probabilities": [0.75, 0.25],
            "token_id": 9,
        },
    ],
    "scalar experts": [
        {"layer": 3, "token_idx": 17, "expert_idx": 4, "gate_weight": 0.75},
        {"layer": 3, "token_idx": 17, "expert_idx": 91, "gate_weight": 0.25},
    ],
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_home_made_flavours_are_one_format(written, flavour):
    trace = read_trace(written(FLAVOURS[flavour]))
    assert trace.provenance["format"] == "jsonl"
    assert ids_of(trace) == [[[4, 91]]]
    assert trace.expert_weights.tolist() == [[[0.75, 0.25]]]
    assert (trace.names, trace.positions.tolist()) == (("3",), [17])
    declared = any("num_experts" in record for record in FLAVOURS[flavour])
    assert (trace.num_experts, trace.provenance["num_experts_from"]) == (
        (128, "declared") if declared else (92, "largest id + 1")
    )
    assert (trace.phases is not None) == any({"phase", "ph"} & record.keys() for record in FLAVOURS[flavour])
    if trace.phases is not None:
        assert trace.phases.tolist() == [DECODE]
    if flavour == "mer":
        assert trace.resident.tolist() == [[[1, 0]]]
    if flavour in ("moe-policylang", "moe-cache-lab"):
        assert trace.token_ids.tolist() == [9]
    if flavour in ("moe-policylang", "moe-cache-lab", "vllm patch"):
        assert trace.provenance["model"] == "m"


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=50)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 4)),
    layer_major=st.booleans(),
    seed=st.integers(0, 9),
    block=st.sampled_from([1, 100, 2**23]),
)
def test_the_order_of_tokens_and_layers_changes_nothing(written, shape, layer_major, seed, block):
    ids = random_ids(*shape, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generic_jsonl, "BLOCK_BYTES", block)
        trace = read_trace(written(records_of(ids, layer_major)), num_experts=16)
    assert ids_of(trace) == ids.tolist()
    assert trace.positions.tolist() == list(range(shape[0]))
    assert trace.num_sequences == 1


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=30)
@given(seed=st.integers(0, 99))
def test_records_in_any_order_make_the_same_trace(written, seed):
    ids = random_ids(5, 3, 2, seed=seed)
    records = records_of(ids)
    random.Random(seed).shuffle(records)
    assert ids_of(read_trace(written(records))) == ids.tolist()


@settings(suppress_health_check=REUSED_FOLDER, deadline=None, max_examples=50)
@given(
    runs=st.lists(st.tuples(st.integers(2, 6), st.integers(0, 3), st.booleans()), min_size=1, max_size=4),
    layers=st.integers(1, 3),
)
def test_appended_runs_are_sequences_of_their_own(written, runs, layers):
    parts = [random_ids(tokens, layers, 2, seed=number) for number, (tokens, _, _) in enumerate(runs)]
    first = [start for _, start, _ in runs]
    records: list[dict[str, Any]] = []
    for ids, start, (_, _, layer_major) in zip(parts, first, runs, strict=True):
        records += records_of(ids, layer_major, start)
    overlap = all(
        first[n + 1] < first[n] + len(parts[n]) and first[n] < first[n + 1] + len(parts[n + 1])
        for n in range(len(runs) - 1)
    )
    trace = read_trace(written(records), num_experts=16)
    if overlap:  # a run that goes on where the last one ended cannot be told apart
        assert [sequence.tolist() for sequence in trace.sequences()] == [ids.tolist() for ids in parts]
        assert trace.positions.tolist() == [
            start + token for start, ids in zip(first, parts, strict=True) for token in range(len(ids))
        ]


def test_a_header_begins_a_run_even_where_nothing_is_said_again(written):
    header = {"type": "meta", "num_experts": 16}
    ids = random_ids(4, 2, 2)
    trace = read_trace(written([header, *records_of(ids[:2]), header, *records_of(ids[2:], first=2)]))
    assert [len(sequence) for sequence in trace.sequences()] == [2, 2]
    assert ids_of(trace) == ids.tolist()


def test_requests_in_turn_are_sequences_of_their_own(written):
    ids = random_ids(6, 2, 2)
    records = [
        {"request_id": "ba"[token % 2], "token": token // 2, "layer": layer, "experts": ids[token, layer].tolist()}
        for token in range(6)
        for layer in range(2)
    ]
    trace = read_trace(written(records))
    assert [s.tolist() for s in trace.sequences()] == [ids[::2].tolist(), ids[1::2].tolist()]


def test_a_row_number_that_restarts_at_every_forward_pass_goes_on_with_the_sequence(written):
    ids = random_ids(7, 2, 2)
    prompts = [records_of(ids[:3], layer_major=True), records_of(ids[4:6], layer_major=True)]
    decoded = [records_of(ids[3:4]), records_of(ids[6:7])]
    trace = read_trace(written(prompts[0] + decoded[0] + prompts[1] + decoded[1]))
    assert [s.tolist() for s in trace.sequences()] == [ids[:4].tolist(), ids[4:].tolist()]
    assert trace.positions.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert trace.valid_pairs().tolist() == [True, True, True, False, True, True]


def test_ragged_choices_and_missing_layers_become_empty_slots(written):
    trace = read_trace(
        written(
            [
                {"token": 0, "layer": 1, "experts": [3]},
                {"token": 0, "layer": 5, "experts": [2, 1, 0]},
                {"token": 1, "layer": 5, "experts": []},
                {"token": 2, "layer": 1, "experts": [0, -1, 3]},
            ]
        )
    )
    assert trace.names == ("1", "5")
    assert ids_of(trace) == [
        [[3, -1, -1], [2, 1, 0]],
        [[-1, -1, -1], [-1, -1, -1]],
        [[0, 3, -1], [-1, -1, -1]],
    ]


@pytest.mark.parametrize(
    ("key", "spelled"),
    [
        ("phase", ("prefill", "decode")),
        ("phase", ("PREFILL", "DECODE")),
        ("phase", ("prompt", "generated")),
        ("ph", (0, 1)),
        ("phase", (1, 2)),
        ("phase", ("1", "2")),
        ("is_prefill", (True, False)),
        ("is_prefill", (1, 0)),
        ("is_decode", (False, True)),
        ("stage", ("prefill", "decode")),
    ],
)
def test_every_spelling_of_the_phases(written, key, spelled):
    records = [{"token": t, "layer": 0, "experts": [t], key: spelled[t > 1]} for t in range(4)]
    assert read_trace(written(records)).phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE]


def test_phases_that_are_not_said_everywhere_are_left_out_by_name(written):
    records = [{"token": 0, "layer": 0, "experts": [0], "phase": "decode"}, {"token": 1, "layer": 0, "experts": [0]}]
    with pytest.warns(TraceWarning, match="phases are left out"):
        assert read_trace(written(records)).phases is None


def test_the_user_may_say_what_the_file_does_not(written):
    ids = random_ids(6, 1, 2)
    trace = read_trace(written(records_of(ids)), prompt_tokens=2, num_experts=99, chunk_tokens=4)
    assert trace.phases.tolist() == [PREFILL, PREFILL, *[DECODE] * 4]
    assert (trace.num_experts, trace.provenance["num_experts_from"]) == (99, "given")
    assert [len(sequence) for sequence in trace.sequences()] == [4, 2]


def test_slots_are_sorted_by_weight_with_what_belongs_to_them(written):
    record = {"token": 0, "layer": 0, "experts": [5, 6, 7], "weights": [0.2, 0.5, 0.3], "cache_hit": [1, 0, 2]}
    trace = read_trace(written([record]))
    assert ids_of(trace) == [[[6, 7, 5]]]
    assert trace.expert_weights.tolist() == [[[np.float32(0.5), np.float32(0.3), np.float32(0.2)]]]
    assert trace.resident.tolist() == [[[0, 2, 1]]]


@pytest.mark.parametrize("bad", [[float("nan"), 0.5], [None, 0.5], None])
def test_weights_that_are_not_numbers_are_left_out_by_name(written, bad):
    records = [
        {"token": 0, "layer": 0, "experts": [1, 2], "weights": [0.6, 0.4]},
        {"token": 1, "layer": 0, "experts": [2, 1], "weights": bad},
    ]
    with pytest.warns(TraceWarning, match="weights are left out: [12] of them are not finite"):
        trace = read_trace(written(records))
    assert trace.expert_weights is None
    assert ids_of(trace) == [[[1, 2]], [[2, 1]]]


def test_layers_are_known_by_their_names(written):
    records = [
        {"token": 0, "layer": name, "experts": [number]}
        for number, name in enumerate(["model.layers.10.mlp", "model.layers.9.mlp"])
    ]
    trace = read_trace(written(records))
    assert trace.names == ("model.layers.9.mlp", "model.layers.10.mlp")
    assert ids_of(trace) == [[[1], [0]]]


def test_layers_of_two_stacks_that_share_a_number_stay_apart(written):
    records = [
        {"token": 0, "block": block, "layer": layer, "experts": [number]}
        for number, (block, layer) in enumerate([("decoder", 1), ("decoder", 0), ("mtp", 0)])
    ]
    trace = read_trace(written(records))
    assert trace.names == ("decoder.0", "decoder.1", "mtp.0")
    assert ids_of(trace) == [[[1], [0], [2]]]


def test_a_record_may_hold_all_layers_of_a_token(written):
    ids = random_ids(3, 2, 2)
    trace = read_trace(written([{"token": token, "experts": ids[token].tolist()} for token in range(3)]))
    assert ids_of(trace) == ids.tolist()


def test_a_record_may_hold_a_batch_of_a_layer(written):
    ids = random_ids(5, 2, 2)
    weights = -np.sort(-default_rng(0).random((5, 2, 2)), axis=-1).round(3)
    records = [
        {
            "layer": layer,
            "batch_id": batch,
            "origin_rows": [0],
            "topk_experts": ids[rows, layer].tolist(),
            "topk_weights": weights[rows, layer].tolist(),
        }
        for batch, rows in enumerate([slice(0, 3), slice(3, 4), slice(4, 5)])
        for layer in range(2)
    ]
    trace = read_trace(written(records))
    assert ids_of(trace) == ids.tolist()
    assert np.array_equal(trace.expert_weights, weights.astype(np.float32))
    assert trace.event_ids.tolist() == [0, 0, 0, 1, 2]
    assert trace.phases.tolist() == [PREFILL] * 3 + [DECODE] * 2


def test_records_without_token_numbers_are_told_apart_by_their_layers(written):
    ids = random_ids(3, 2, 2)
    records = [
        {"layer": layer, "experts": ids[token, layer].tolist(), "phase": "prefill"}
        for token in range(3)
        for layer in range(2)
    ]
    trace = read_trace(written(records), format="jsonl")
    assert ids_of(trace) == ids.tolist()
    assert trace.phases.tolist() == [PREFILL] * 3
    assert trace.provenance["phases_from"] == "the file"


def test_ids_numbered_through_the_layers_are_numbered_in_each(written):
    ids = random_ids(70, 3, 2)
    flat = ids + 16 * np.arange(3)[:, None]
    trace = read_trace(written(records_of(flat)), num_experts=16)
    assert ids_of(trace) == ids.tolist()
    assert trace.provenance["expert_ids"] == "were numbered through the layers"


def test_an_order_by_number_is_told(written):
    ids = np.sort(random_ids(70, 2, 3), axis=-1)
    assert "ids ascend" in read_trace(written(records_of(ids))).provenance["slots"]
    assert "slots" not in read_trace(written(records_of(random_ids(70, 2, 3)))).provenance


def test_unassigned_tokens_are_told_by_their_state(written):
    records = [
        {"token": 0, "layer": 0, "selected_experts": [1], "assignment_state": "assigned"},
        {"token": 1, "layer": 0, "selected_experts": None, "assignment_state": "unassigned"},
    ]
    assert ids_of(read_trace(written(records))) == [[[1]], [[-1]]]


def test_forward_passes_are_kept_where_the_file_names_them(written):
    ids = random_ids(3, 2, 1)
    records = [record | {"step": [4, 4, 5][record["token"]]} for record in records_of(ids)]
    assert read_trace(written(records)).event_ids.tolist() == [4, 4, 5]
    records[-1]["step"] = 6
    with pytest.warns(TraceWarning, match="layers of one token name different ones"):
        assert read_trace(written(records)).event_ids is None
    records = [record | {"step": 5 - record["token"]} for record in records_of(ids)]
    with pytest.warns(TraceWarning, match="their numbers fall inside a sequence"):
        assert read_trace(written(records)).event_ids is None


def test_records_that_route_nothing_are_left_out_by_name(written):
    records = [*records_of(random_ids(2, 1, 1)), {"type": "summary", "seconds": 3}]
    with pytest.warns(TraceWarning, match="1 records name neither layer nor experts and are left out"):
        assert read_trace(written(records)).num_tokens == 2


def test_blank_lines_a_mark_and_windows_ends_are_no_matter(tmp_path):
    lines = [json.dumps(record) for record in records_of(random_ids(2, 2, 1))]
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    assert ids_of(read_trace(tmp_path / "t")) == random_ids(2, 2, 1).tolist()


GOOD = {"token": 0, "layer": 0, "experts": [0, 1], "weights": [0.6, 0.4], "phase": "decode"}


@pytest.mark.parametrize(
    ("records", "options", "words"),
    [
        ([GOOD, GOOD | {"layer": "x"}], {}, "layer must be a whole number or a word"),
        ([GOOD, {"token": 1, "layer": 0}], {}, "record 2 must name its layer and experts, got no experts"),
        ([GOOD, {"token": 1, "experts": [1]}], {}, "record 2 must name its layer and experts, got no layer"),
        ([GOOD, {"layer": 0, "experts": [1]}], {}, "record 2 must name its token"),
        ([GOOD | {"experts": [0, -2]}], {}, "got -2"),
        ([GOOD | {"experts": [0, 2**31]}], {}, "line 1 must be a JSON record"),
        ([GOOD | {"experts": [0, 0.5]}], {}, "experts must be a list of whole numbers"),
        ([GOOD | {"experts": [0, None]}], {}, "experts must be a list of whole numbers"),
        ([GOOD | {"experts": [1, 1]}], {}, "got 1 twice at token 0, layer 0"),
        ([GOOD | {"experts": list(range(1025)), "weights": [0] * 1025}], {}, "at most 1024 experts a layer, got 1025"),
        ([GOOD | {"weights": [1.0]}], {}, "record 1 must have one of weights an expert, got 1 weights for 2 experts"),
        ([GOOD | {"phase": "both"}], {}, "phase must be prefill or decode, .* got 'both'"),
        ([GOOD | {"phase": 0}, GOOD | {"token": 1, "phase": 2}], {}, "got 0 and 2"),
        ([GOOD, GOOD | {"layer": 1, "phase": "prefill"}], {}, "must have the phase of its token's other layers"),
        ([GOOD], {"num_experts": 1}, "got 1"),
        ([GOOD], {"top_k": 3}, "top_k must be what the file holds, got top_k 3 against 2"),
        ([GOOD], {"num_layers": 3}, "num_layers must be what the file holds"),
        ([GOOD], {"prompt_tokens": 1}, "prompt_tokens must be left out where the file tells the phases"),
        ([{"num_experts": 4}, GOOD, {"num_experts": 5}], {}, "must be the same in all the file, got 5 after 4"),
        ([{"num_experts": 1}, GOOD], {}, r"below num_experts 1 \(declared\), got 1"),
        ([{"num_experts": 4, "top_k": 1}, GOOD], {}, "top_k must be at most 1, as the file declares, got 2"),
        ([{"num_experts": 4}], {}, "token or layer and its experts"),
        ([GOOD, GOOD | {"token": 10**9}], {"max_bytes": 20}, "max_bytes 20"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_refused_in_one_line(written, refused, records, options, words):
    assert re.search(words, refused(written(records), format="jsonl", **options))


@pytest.mark.parametrize("line", ["{", "[]", "1", '{"token": 1, "layer": 0, "experts": [1, 0]', '{"layer": 0} x', "\0"])
def test_a_broken_line_is_named(written, refused, line):
    path = written([GOOD] + [GOOD | {"token": token} for token in range(1, 400)])
    path.write_text(path.read_text() + "\n" + line + "\n" + json.dumps(GOOD | {"token": 999}) + "\n")
    assert "line 402 must be a JSON record like the others" in refused(path, format="jsonl")


@pytest.mark.parametrize("null", ["null\n", "\ufeffnull\n", " \t null \r", "\n\r\nnull,"])
def test_a_null_in_a_line_of_its_own_is_named(written, refused, null):
    # Whole megabytes of them: the parser of JSON may not find one where it begins to read
    path = written([{"token": 0, "layer": 0, "experts": [1]}])
    for text in (null, path.read_text() + null * 2**18):
        path.write_text(text, newline="")
        assert "null" in refused(path, "jsonl")


def test_a_line_may_be_longer_than_what_is_parsed_at_a_time(written):
    ids = random_ids(3000, 2, 4, num_experts=99)
    records = [
        {"layer": layer, "topk_experts": ids[rows, layer].tolist()}
        for rows in (slice(0, 4), slice(4, 3000))
        for layer in range(2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generic_jsonl, "PARSED_BYTES", 2**12)
        assert ids_of(read_trace(written(records))) == ids.tolist()


def test_many_tokens_of_few_layers_each_are_refused_before_memory_is_taken(written, refused):
    records = [{"token": number, "layer": number, "experts": [0]} for number in range(2000)]
    assert "max_bytes" in refused(written(records), max_bytes=2**22)


def test_records_in_no_order_are_refused_where_they_repeat(written, refused):
    records = [record for seed in range(3) for record in records_of(random_ids(200, 2, 1, seed=seed))]
    random.Random(0).shuffle(records)
    assert "records must stand in the order they were made in" in refused(written(records))
