"""Megatron router traces: ranks, pipelines, MTP layers apart, sorted ids said to be sorted, damage named."""

import functools
import json

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace


def record(step, layer, indices, rank=0, block="decoder", **more):
    size = {"num_tokens": len(indices), "topk": len(indices[0]) if indices else 0}
    where = {"step": step, "stage": "pre_dispatch", "block": block, "layer": layer, "rank": rank}
    return json.dumps(where | size | {"top_indices": indices} | more)


RECORDS = [
    record(0, 1, [[3, 9], [2, 45]]),
    record(0, 3, [[12, 45], [3, 9]], logit_offset=0, logit_shape=[2, 64]),
    record(1, 1, [[0, 1]]),
    record(1, 3, [[2, 7]]),
]


@pytest.fixture
def written(tmp_path):
    def write(*ranks):
        for number, lines in enumerate(ranks or (RECORDS,)):
            (tmp_path / f"router_trace_rank{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path

    return write


def test_a_file_and_its_folder_read_the_same(written):
    folder = written()
    trace = read_trace(folder)
    assert trace.expert_ids.tolist() == [[[3, 9], [12, 45]], [[2, 45], [3, 9]], [[0, 1], [2, 7]]]
    assert trace.layer_names == ("1", "3")
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1]
    assert trace == read_trace(folder / "router_trace_rank0.jsonl")


def test_sorted_ids_are_said_to_be_sorted_and_others_are_not(written):
    assert "slot 0 is not the top-1" in read_trace(written()).provenance["slot_order"]
    assert "slot_order" not in read_trace(written([record(0, 1, [[5, 2], [1, 4]])])).provenance


def test_ranks_of_the_same_layers_are_sequences_in_the_order_of_their_numbers(written):
    other = [record(0, 1, [[7, 8]], 1), record(0, 3, [[8, 9]], 1)]
    ranks = [RECORDS] + [[]] * 9 + [other]
    folder = written(*ranks)
    for number in range(1, 10):
        (folder / f"router_trace_rank{number}.jsonl").unlink()
    trace = read_trace(folder)
    assert trace.sequence_ids.tolist() == [0, 0, 0, 1]
    assert trace.expert_ids[3].tolist() == [[7, 8], [8, 9]]


def test_a_rank_that_repeats_another_is_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="1 of 2 ranks are left out"):
        assert read_trace(written(RECORDS, RECORDS)).num_sequences == 1


def test_ranks_of_a_pipeline_lie_side_by_side(written):
    late = [line for line in RECORDS if '"layer": 3' in line]
    early = [line for line in RECORDS if '"layer": 1' in line]
    trace = read_trace(written(late, early))
    assert trace.expert_ids.tolist() == [[[3, 9], [12, 45]], [[2, 45], [3, 9]], [[0, 1], [2, 7]]]
    assert trace.layer_names == ("1", "3")
    assert trace.event_ids.tolist() == [0, 0, 1]


def test_ranks_of_a_pipeline_must_have_seen_the_same_tokens(written, refused):
    assert "must have seen the same tokens" in refused(written(RECORDS[:1], [record(0, 5, [[1, 2]])]))


def test_layers_shared_by_some_ranks_only_are_refused(written, refused):
    assert "read one file at a time" in refused(written(RECORDS, [record(0, 3, [[1, 2]])]))


def test_mtp_layers_stay_apart_from_decoder_layers_of_the_same_number(written):
    mtp = [record(0, 1, [[5, 6], [7, 8]], block="mtp", mtp_idx=0), record(1, 1, [[8, 9]], block="mtp", mtp_idx=0)]
    trace = read_trace(written([*RECORDS[:2], mtp[0], *RECORDS[2:], mtp[1]]))
    assert trace.layer_names == ("1", "3", "mtp0.1")
    assert trace.expert_ids[:, 2].tolist() == [[5, 6], [7, 8], [8, 9]]


def test_microbatches_of_one_step_are_passes(written):
    trace = read_trace(written([record(0, 1, [[1, 2]]), record(0, 1, [[3, 4]]), record(1, 1, [[5, 6]])]))
    assert trace.event_ids.tolist() == [0, 1, 2]


def test_a_long_file_read_in_pieces_equals_the_slow_reading(written, monkeypatch):
    from stickymoe.traces.importers import megatron

    pieces = functools.partial(megatron.blocks_of_lines, block_bytes=300)
    monkeypatch.setattr(megatron, "blocks_of_lines", pieces)
    rng = np.random.default_rng(0)
    tokens, text = [], []
    for step in range(40):
        chosen = np.argsort(rng.random((3, int(rng.choice([1, 5])), 9)), axis=-1)[..., :2]
        text += [record(step, layer, chosen[layer].tolist()) for layer in range(3)]
        tokens += chosen.transpose(1, 0, 2).tolist()
    assert read_trace(written(text)).expert_ids.tolist() == tokens


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ('{"step": 2, "layer": 1, "top_ind', "router_trace_rank0.jsonl, line 5 must be one JSON record"),
        (RECORDS[2][:-3], "line 5 must be one JSON record"),
        ("null" + RECORDS[2], "line 5 must be one JSON record"),
        ("null", "line 5 must be a JSON object with 'top_indices'"),
        ('["top_indices", [[1, 2]]]', "line 5 must be a JSON object"),
        ('{"step": 2, "layer": 1}', "line 5 must be a JSON object with 'top_indices'"),
        ('{"step": 2, "layer": 1, "note": "top_indices"}', "line 5 must be a JSON object with 'top_indices'"),
        ('{"step": 2, "top_indices": [[1, 2]]}', "line 5 must have 'layer', a whole number from 0 on, got None"),
        (record(2, 1, [[1, 2, 3]]), "line 5 must hold 'top_indices' as one list of 2 expert ids >= 0 a token"),
        (record(2, 1, []), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[1, 2], [3]]), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[1, None]]), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[1, 2.5]]), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[1, 2**40]]), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[1, -2]]), "line 5 must hold 'top_indices'"),
        (record(2, 1, [[[1, 2]]]), "line 5 must"),
        ('{"step": 2, "layer": 1, "top_indices": [1]}', "line 5 must hold 'top_indices'"),
        ('{"step": 2, "layer": 1, "top_indices": "[[1, 2]]"}', "line 5 must hold 'top_indices'"),
        ('{"step": 2, "layer": true, "top_indices": [[1, 2]]}', "line 5 must have 'layer'"),
        ('{"step": 1e3, "layer": 1, "top_indices": [[1, 2]]}', "line 5 must have 'step'"),
        (record(2, -1, [[1, 2]]), "line 5 must have 'layer', a whole number from 0 on, got -1"),
        (record(2, 1, [[1, 2]], block="x y"), "a block of letters"),
        (record(2, 1, [[1, 2]], num_tokens=7), "line 5 must have its num_tokens, 7, in 'top_indices', got 1"),
        (record(2, 1, [[1, 2]], topk=3), "line 5 must have its topk, 3, in 'top_indices', got 2"),
        (record(2, 7, [[1, 2]]), "must have all 3 layers"),
    ],
)
def test_a_broken_record_is_named(written, refused, line, rule):
    assert rule in refused(written([*RECORDS, line]))


def test_lists_may_be_written_with_other_blanks(written):
    lines = [line.replace("]]", "] ]").replace("[[", "[ [").replace(", ", " ,") for line in RECORDS]
    assert read_trace(written(lines)) == read_trace(written(RECORDS))


def test_an_expert_named_twice_is_refused(written, refused):
    assert "got 1 twice" in refused(written([record(0, 1, [[1, 1]])]))


def test_an_empty_folder_or_file_is_refused(written, refused, tmp_path):
    assert "at least one record" in refused(written([]))
    (tmp_path / "router_trace_rank0.jsonl").unlink()
    assert "router_trace_rank<r>.jsonl" in refused(tmp_path, "megatron")
    assert "max_bytes 10" in refused(written(), max_bytes=10)
