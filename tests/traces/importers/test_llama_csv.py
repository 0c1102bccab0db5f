"""llama-moe-trace's `layer,expert` CSV: tokens cut from runs of lines, k found or asked for, several files in one."""

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, UsageProfile, read_trace

# Two tokens of prefill, layer by layer, then two of decode; layers 0 and 2
PREFILLED = [(0, 1), (0, 2), (0, 3), (0, 0), (2, 5), (2, 4), (2, 5), (2, 1)]
DECODED = [(0, 3), (0, 1), (2, 0), (2, 5), (0, 2), (0, 3), (2, 1), (2, 2)]


def text(rows, header="layer,expert\n"):
    return header + "".join(f"{layer},{expert}\n" for layer, expert in rows)


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "moe_trace.csv"
        path.write_text(content if isinstance(content, str) else text(content))
        return path

    return write


def test_runs_of_k_lines_are_tokens_and_k_comes_from_a_decode_step(written):
    trace = read_trace(written(PREFILLED + DECODED))
    assert trace.expert_ids.tolist() == [
        [[1, 2], [5, 4]],
        [[3, 0], [5, 1]],
        [[3, 1], [0, 5]],
        [[2, 3], [1, 2]],
    ]
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1, 2]
    assert trace.layer_names == ("0", "2")
    assert trace.num_experts == 6
    assert trace.provenance["top_k_from"].startswith("the shortest run of one layer's lines")


def test_a_prefill_alone_does_not_tell_k(written, refused):
    rows = [(0, 1), (0, 2), (0, 1), (0, 3), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert "top_k must be given" in refused(written(rows))
    assert read_trace(written(rows), top_k=2).expert_ids.shape == (2, 2, 2)
    assert read_trace(written(rows), top_k=2).provenance["top_k_from"] == "given"


def test_a_k_that_tears_a_run_is_refused_with_its_line(written, refused):
    assert "whole tokens of top_k 3, got 4 lines from line 2 on" in refused(written(PREFILLED + DECODED), top_k=3)


def test_a_prefill_whose_last_layer_is_pruned_tells_k_by_that_layer(written):
    trace = read_trace(written([(0, 1), (0, 2), (0, 1), (0, 3), (1, 4), (1, 0), (0, 2), (0, 3), (1, 1), (1, 2)]))
    assert trace.expert_ids.tolist() == [[[1, 2], [-1, -1]], [[1, 3], [4, 0]], [[2, 3], [1, 2]]]


def test_one_layer_alone_needs_k_and_then_every_token_is_a_pass(written, refused):
    rows = [(7, 0), (7, 1), (7, 1), (7, 2)]
    assert "top_k must be given" in refused(written(rows))
    assert read_trace(written(rows), top_k=2).event_ids.tolist() == [0, 1]


def test_files_put_behind_each_other_are_sequences(written):
    trace = read_trace(written(text(PREFILLED + DECODED) + text(DECODED)))
    assert trace.sequence_ids.tolist() == [0, 0, 0, 0, 1, 1]
    assert trace.expert_ids[4:].tolist() == trace.expert_ids[2:4].tolist()


def test_lines_may_end_as_on_windows(written):
    path = written("")
    path.write_bytes(text(DECODED).replace("\n", "\r\n").encode())
    assert read_trace(path).num_tokens == 2


def test_a_last_pass_that_the_end_cuts_short_is_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="from line 18 on"):
        trace = read_trace(written(PREFILLED + DECODED + DECODED[:2]))
    assert trace.num_tokens == 4


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "empty"),
        ("layer,expert\n", "found only the header"),
        ("expert,layer\n1,2\n", "line 1 must be the header"),
        (text(DECODED) + "0", "Expected 2 columns, got 1"),
        (text(DECODED) + "0,x\n", "invalid value 'x'"),
        (text(DECODED) + "0,1.5\n", "invalid value '1.5'"),
        (text(DECODED) + "0,99999999999\n", "invalid value"),
        (text([*DECODED[:3], (2, -1), *DECODED[4:]]), "line 5 must have an expert >= 0, got -1"),
        (text([(-1, 1), (-1, 2), *DECODED]), "line 2 must have a layer >= 0, got -1"),
        (text([*DECODED[:2], (0, 2), *DECODED[2:]]), "top_k must be given"),
        (text(DECODED[:4] + [(0, 3), (0, 1)] + [(0, 3), (0, 3)] * 1), "top_k must be given"),
        (text([(0, 1), (0, 2), (1, 3), (1, 4), (0, 1), (0, 2), (2, 1), (2, 2)]), "must have all 3 layers, got 2"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(written, refused, content, rule):
    assert rule in refused(written(content), "llama-csv")


def test_a_flat_copy_of_the_strided_top_k_is_recognised(written, refused):
    rng = np.random.default_rng(3)
    rows = [(layer, e) for layer in (0, 1) for e in np.argsort(rng.random((8, 8)), axis=1).reshape(-1)[:32].tolist()]
    rows += [(0, 1), (0, 2), (1, 3), (1, 4)]
    message = refused(written(rows))
    assert "whole rankings of all 8 experts" in message
    # The same symptom in other words: with as many tokens as experts, each id comes k times
    assert np.bincount([e for layer, e in rows if layer == 0][:32]).tolist() == [4] * 8


def test_a_count_profile_is_not_taken_for_a_trace(written, refused):
    path = written("layer,expert,count\n0,1,7\n")
    assert isinstance(read_trace(path), UsageProfile)
    assert "line 1 must be the header 'layer,expert'" in refused(path, "llama-csv")
