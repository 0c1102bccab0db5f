"""BigMoeOnEdge route traces: by the format's definition, cut off and lying ones, and two from real devices."""

import json
import re

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace

HEADER = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"
PREAMBLE = [
    "# route_trace v1",
    "# model=tiny.gguf arch=tinymoe n_layer=5 n_expert=8 n_expert_used=2",
    *[f"# layer={layer} expert_bytes={1000 + layer} dense_bytes=7" for layer in range(5)],
]
# One turn: two prompt tokens, layer-major, the last layer routing only the second; then two decoded tokens
ROWS = [
    "0,0,0,1,0,3,0.75,0,1001",
    "0,0,0,1,1,5,0.25,0,1001",
    "0,0,1,1,0,3,0.6,0,0",
    "0,0,1,1,1,1,0.4,0,1001",
    "0,0,1,4,0,7,0.9,0,1004",
    "0,0,1,4,1,2,0.1,0,1004",
    "0,1,2,1,0,3,0.5,1,0",
    "0,1,2,1,1,0,0.5,0,1001",
    "0,1,2,4,0,2,0.8,2,0",
    "0,1,2,4,1,7,0.2,1,0",
    "0,1,3,1,0,0,0.7,1,0",
    "0,1,3,1,1,6,0.3,0,1001",
    "0,1,3,4,0,2,0.7,1,0",
    "0,1,3,4,1,1,0.3,0,1004",
]


@pytest.fixture
def written(tmp_path):
    def write(rows=ROWS, header=HEADER, preamble=PREAMBLE, end="\n"):
        path = tmp_path / "run.route.csv"
        path.write_text("\n".join([*preamble, header, *rows]) + end)
        return path

    return write


def test_a_route_trace_keeps_all_that_it_tells(written):
    trace = read_trace(written())
    assert trace.expert_ids.tolist() == [
        [[3, 5], [-1, -1]],
        [[3, 1], [7, 2]],
        [[3, 0], [2, 7]],
        [[0, 6], [2, 1]],
    ]
    assert trace.resident.tolist() == [
        [[0, 0], [-1, -1]],
        [[0, 0], [0, 0]],
        [[1, 0], [2, 1]],
        [[1, 0], [1, 0]],
    ]
    assert trace.expert_weights[0, 0].tolist() == [0.75, 0.25]
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE]
    assert trace.positions.tolist() == [0, 1, 2, 3]
    assert trace.event_ids.tolist() == [0, 0, 1, 2]
    assert trace.sequence_ids.tolist() == [0, 0, 0, 0]
    assert trace.layer_names == ("1", "4")
    assert trace.expert_bytes.tolist() == [1001, 1004]
    assert trace.num_experts == 8
    told = {"model": "tiny.gguf", "arch": "tinymoe", "num_experts_from": "declared", "format": "bigmoeonedge"}
    assert trace.provenance == told


def test_turns_are_sequences_and_a_prompt_in_chunks_is_a_pass_a_chunk(written):
    second = [
        "4,0,4,1,0,1,0.6,0,0",
        "4,0,4,1,1,2,0.4,0,0",
        "4,0,5,1,0,1,0.6,0,0",
        "4,0,5,1,1,2,0.4,0,0",
        "4,0,5,4,0,1,0.6,0,0",
        "4,0,5,4,1,2,0.4,0,0",
        "4,0,6,1,0,1,0.6,0,0",
        "4,0,6,1,1,2,0.4,0,0",
        "4,0,6,4,0,1,0.6,0,0",
        "4,0,6,4,1,2,0.4,0,0",
    ]
    trace = read_trace(written(ROWS + second))
    assert trace.sequence_ids.tolist() == [0] * 4 + [4] * 3
    assert trace.event_ids.tolist() == [0, 0, 1, 2, 3, 3, 4]
    assert trace.positions.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_columns_are_read_by_name_and_dropped_choices_are_kept_with_a_warning(written):
    header = "dropped,expert,slot,layer,step,phase,turn,future"
    rows = [f"{row % 2},{row + 1},{row},1,0,1,0,x" for row in range(2)]
    with pytest.warns(TraceWarning, match="dropped 1 of 2 choices"):
        trace = read_trace(written(rows, header))
    assert trace.expert_ids.tolist() == [[[1, 2]]]
    assert trace.expert_weights is None
    assert trace.resident is None


def test_without_a_preamble_the_rows_must_do(written):
    trace = read_trace(written(preamble=[]))
    assert trace.provenance["num_experts_from"] == "largest id + 1"
    assert trace.expert_bytes is None
    assert trace.num_experts == 8
    assert read_trace(written(preamble=[]), num_experts=64).num_experts == 64


def test_slots_are_sorted_by_weight_with_what_the_device_saw(written):
    rows = ["0,1,0,1,0,3,0.1,2,0", "0,1,0,1,1,5,0.9,1,0"]
    trace = read_trace(written(rows))
    assert trace.expert_ids.tolist() == [[[5, 3]]]
    assert trace.resident.tolist() == [[[1, 2]]]
    assert trace.expert_weights[0, 0].tolist() == pytest.approx([0.9, 0.1])


def test_weights_that_are_nan_are_left_out_with_a_warning(written):
    rows = [ROWS[0].replace("0.75", "nan"), *ROWS[1:]]
    with pytest.warns(TraceWarning, match="nan in 1 of 14 rows"):
        assert read_trace(written(rows)).expert_weights is None


def test_a_last_token_cut_off_is_left_out_with_a_warning(written):
    for rows, found in ((ROWS[:-1], "1 rows of 2 in layer 4"), (ROWS[:-2], "0 rows of 2 in layer 4")):
        with pytest.warns(TraceWarning, match=found):
            trace = read_trace(written(rows))
        assert trace.positions.tolist() == [0, 1, 2]


def changed(number: int, **columns) -> list[str]:
    """Return the rows with some columns of one of them changed."""
    cells = dict(zip(HEADER.split(","), ROWS[number].split(","), strict=True)) | columns
    return [*ROWS[:number], ",".join(cells.values()), *ROWS[number + 1 :]]


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([], "Empty CSV file"),
        (
            changed(3, expert="8"),
            r"line 12 \(turn 0, phase 0, step 1, layer 1, slot 1\): expert must be .* to 7, got 8",
        ),
        (changed(3, expert="-1"), "expert must be from 0 to 7, got -1"),
        (changed(3, expert="3"), "3 twice at token 1, layer 0"),
        (changed(3, slot="0"), "line 12 .* must be there once"),
        (changed(3, slot="2"), "slot must be from 0 to 1, got 2"),
        (changed(3, layer="5"), "layer must be from 0 to 4, got 5"),
        (changed(8, step="-1"), "step must be from 0 to 2147483647, got -1"),
        (changed(8, phase="2"), "phase must be from 0 to 1, got 2"),
        (changed(8, residency="3"), "residency must be from 0 to 2, got 3"),
        (changed(3, expert="x"), "line 12: .*'x'"),
        (changed(3, expert=""), "line 12: .*''"),
        (changed(3, expert="9" * 30), "line 12"),
        (changed(3, weight="inf"), "finite in float32"),
        ([*ROWS[:3], "0,0,1,1", *ROWS[4:]], "9 numbers each, got: .*line 12"),
        ([*ROWS, "0,1,4,1,0,"], "9 numbers each, got: .*line 23"),
        ([*ROWS[:7], *ROWS[8:]], r"line 15 .* must be whole, got 1 rows of 2 in layer 1"),
        ([*ROWS[:8], *ROWS[10:]], r"line 15 .* must be whole, got 0 rows of 2 in layer 4"),
        ([ROWS[0], *ROWS[2:]], "must be whole, got 1 rows of 2 in layer 1"),
        ([*ROWS, *ROWS], "must be there once"),
        ([row.replace("0,", "1,", 1) for row in ROWS] + ROWS, "turns must not fall, got 0 after 1"),
        ([*ROWS, *PREAMBLE], "9 numbers each, got: .*# route_trace"),
    ],
)
def test_a_row_that_breaks_a_rule_is_named(written, refused, rows, rule):

    message = refused(written(rows), "bigmoeonedge")
    assert re.search(rule, message), message


@pytest.mark.parametrize(
    ("preamble", "header", "rule"),
    [
        (PREAMBLE, "turn,phase,step,layer,slot", "no 'expert'"),
        (PREAMBLE, HEADER + ",slot", "name each column once"),
        (["# route_trace v2"], HEADER, "line 1 must say version v1, got v2"),
        (["# n_expert=many"], HEADER, "n_expert must be a whole number >= 1, got 'many'"),
        (["# n_expert_used=0"], HEADER, "n_expert_used must be a whole number >= 1, got '0'"),
        (PREAMBLE, "# nothing more", "must be the header row"),
    ],
)
def test_a_head_that_breaks_a_rule_is_named(written, refused, preamble, header, rule):
    rows = [] if "nothing" in header else ROWS
    assert rule in refused(written(rows, header, preamble), "bigmoeonedge")


def test_numbers_that_would_need_a_huge_array_are_refused_before_it_is_made(written, refused):
    rows = [f"0,1,{step},{step},0,1" for step in range(3000)]
    header = "turn,phase,step,layer,slot,expert"
    assert "rows must fill 1/64" in refused(written(rows, header, []), "bigmoeonedge")
    assert "max_bytes 1000" in refused(written(), max_bytes=1000)
    assert "num_layers 3, got 2" in refused(written(), num_layers=3)
    assert "top_k 4, got 2" in refused(written(), top_k=4)
    assert "against 8 in the file" in refused(written(), num_experts=9)


def test_an_empty_file_is_refused(tmp_path, refused):
    (tmp_path / "empty").touch()
    assert "header row" in refused(tmp_path / "empty", "bigmoeonedge")


@pytest.mark.parametrize(("name", "shape"), [("gptoss", (149, 36, 2)), ("qwen", (156, 48, 6))])
def test_a_real_trace_holds_the_hit_rate_that_its_device_measured(real, name, shape):
    trace = read_trace(real(f"data/traces/bigmoeonedge/{name}.route.csv"))
    golden = json.loads(real("golden/public_traces.json").read_text())["bigmoeonedge"][name]
    assert trace.expert_ids.shape == shape
    assert trace.num_experts == 128
    prefilled = trace.phases == PREFILL
    assert len(np.unique(trace.event_ids[prefilled])) == 1
    assert (trace.expert_ids[:, -1, 0] < 0).tolist() == [*prefilled[1:], False]
    # The device looks an expert up once a pass and layer, whatever number of tokens wants it
    token, layer, slot = np.nonzero(trace.expert_ids >= 0)
    seen = (trace.event_ids[token], layer, trace.expert_ids[token, layer, slot], trace.resident[token, layer, slot] > 0)
    lookups = np.unique(np.stack(seen), axis=1)
    assert 100 * lookups[3].mean() == pytest.approx(golden["device_measured_cumulative_hit_pct"], abs=0.05)
    lru = golden["decode_hit_pct"]["lru"][str(golden["budget_mib"])]
    assert 100 * (trace.resident[~prefilled] > 0).mean() == pytest.approx(lru, abs=0.05)
