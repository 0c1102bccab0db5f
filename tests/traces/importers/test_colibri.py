"""colibri ROUTE_TRACE: forward passes by their layers, gates, rows of a call, ragged lines."""

import functools

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace

# Prefill of two tokens through layers 3 and 4, then one decoded; the call counter never moves
LINES = [
    "0 0 3 17:0.4012 5:0.2110",
    "0 1 3 17:0.3901 9:0.2204",
    "0 0 4 1:0.6000 2:0.4000",
    "0 1 4 3:0.7000 1:0.3000",
    "0 0 3 5:0.5000 17:0.4000",
    "0 0 4 2:0.9000 3:0.1000",
]


@pytest.fixture
def written(tmp_path):
    def write(lines=LINES, end="\n"):
        path = tmp_path / "route.txt"
        path.write_text("\n".join(lines) + end)
        return path

    return write


def test_forward_passes_are_found_by_their_layers(written):
    trace = read_trace(written(), num_experts=32)
    assert trace.expert_ids.tolist() == [[[17, 5], [1, 2]], [[17, 9], [3, 1]], [[5, 17], [2, 3]]]
    np.testing.assert_allclose(trace.expert_weights[0], [[0.4012, 0.2110], [0.6, 0.4]], rtol=1e-6)
    assert trace.layer_names == ("3", "4")
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1]
    assumed = "assumed: a forward pass of several tokens is prefill, one of a single token decode"
    assert trace.provenance == {"format": "colibri", "num_experts_from": "given", "phases_from": assumed}
    given = read_trace(written(), num_experts=32, prompt_tokens=1)
    assert given.phases.tolist() == [PREFILL, DECODE, DECODE]
    assert given.provenance["phases_from"] == "prompt_tokens given"


def test_the_call_counter_changes_nothing(written):
    moved = [f"{number // 2} {line[2:]}" for number, line in enumerate(LINES)]
    assert read_trace(written(moved)) == read_trace(written())


def test_slots_are_put_in_the_order_of_their_gates(written):
    trace = read_trace(written(["0 0 0 3:0.2 1:0.8"]))
    assert trace.expert_ids.tolist() == [[[1, 3]]]


def test_a_line_with_fewer_experts_leaves_slots_unassigned(written):
    trace = read_trace(written([*LINES[:4], "0 0 3 5:0.5000", LINES[5]]))
    assert trace.expert_ids[2].tolist() == [[5, -1], [2, 3]]
    assert trace.expert_weights[2, 0].tolist() == [0.5, 0.0]


def test_a_head_that_drafts_tokens_in_passes_of_its_own_is_left_out(written):
    with pytest.warns(TraceWarning, match="layer 5 is left out"):
        trace = read_trace(written([*LINES, "0 0 5 1:0.5 2:0.5", "0 0 5 3:0.5 2:0.5"]))
    assert trace.layer_names == ("3", "4")
    assert trace.num_tokens == 3


def test_a_last_pass_that_the_end_cuts_short_is_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="from line 7 on"):
        assert read_trace(written([*LINES, LINES[4]])).num_tokens == 3


def test_a_long_file_read_in_pieces_equals_the_slow_reading(tmp_path, monkeypatch):
    from stickymoe.traces.importers import colibri

    pieces = functools.partial(colibri.blocks_of_lines, block_bytes=100)
    monkeypatch.setattr(colibri, "blocks_of_lines", pieces)
    rng = np.random.default_rng(0)
    text, ids = [], []
    for _ in range(50):
        count = int(rng.choice([1, 3]))
        chosen = np.argsort(rng.random((2, count, 9)), axis=-1)[..., :3]
        for layer in range(2):
            text += [f"0 {r} {layer} " + " ".join(f"{e}:{0.5 - i / 10:.4f}" for i, e in enumerate(chosen[layer, r]))
                     for r in range(count)]  # fmt: skip
        ids += chosen.transpose(1, 0, 2).tolist()
    path = tmp_path / "long.txt"
    path.write_text("\n".join(text) + "\n")
    assert path.stat().st_size > 1000
    assert read_trace(path).expert_ids.tolist() == ids


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("0 0 3 5:0.5 17", "line 7 must read"),
        ("0 0 3 5:0.5 17:", "line 7 must read"),
        ("0 0 3 5:0.5  17:0.4", "line 7 must read"),
        ("0 0 3 -5:0.5 17:0.4", "line 7 must read"),
        ("0 0 3 5:0.5 17:x", "line 7 must read"),
        ("0 0 3", "line 7 must read"),
        ("", "line 7 must read"),
        ("0 0 3 99999999999:0.5 17:0.4", "line 7 must read"),
        ("0 0 3 5.5:0.5 17:0.4", "line 7 must read"),
        ("0 0 3 5:nan 17:0.4", "line 7 must have finite gates, got nan"),
        ("0 0 3 5:1e999 17:0.4", "line 7 must have finite gates, got inf"),
        ("0 2 3 5:0.5 17:0.4", "line 7 must be row 0 of its call, got row 2"),
        ("0 0 7 5:0.5 6:0.4", "starts with line 8, must have all 3 layers, got 2"),
    ],
)
def test_a_broken_line_is_named(written, refused, line, rule):
    assert rule in refused(written([*LINES, line, *LINES[4:], *LINES[4:]]), "colibri")


def test_an_expert_named_twice_is_refused(written, refused):
    assert "once a token and layer, got 5 twice" in refused(written([*LINES[:4], "0 0 3 5:0.5 5:0.4", LINES[5]]))


def test_an_empty_file_is_refused(written, refused):
    assert "at least one line" in refused(written([], end=""), "colibri")
    assert "max_bytes" in refused(written(), "colibri", max_bytes=50)
