"""llama-moe-trace's binary records: by the format's definition, chunked, pruned, cut off, lying, copied flat."""

import re
import struct

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace

# A chunk of two tokens through layers 3 and 5, then one token
RECORDS = [(3, [[0, 7], [1, 2]]), (5, [[4, 0], [4, 6]]), (3, [[7, 1]]), (5, [[2, 3]])]


def record(layer, rows):
    flat = np.asarray(rows, "<i4")
    return struct.pack("<3i", layer, *flat.shape) + flat.tobytes()


@pytest.fixture
def written(tmp_path):
    def write(records=RECORDS, tail=b""):
        path = tmp_path / "moe_trace.bin"
        path.write_bytes(b"".join(record(*each) for each in records) + tail)
        return path

    return write


def test_records_of_a_chunk_become_tokens(written):
    trace = read_trace(written())
    assert trace.expert_ids.tolist() == [[[0, 7], [4, 0]], [[1, 2], [4, 6]], [[7, 1], [2, 3]]]
    assert trace.layer_names == ("3", "5")
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE]
    assert trace.event_ids.tolist() == [0, 0, 1]
    assert trace.sequence_ids.tolist() == [0, 0, 0]
    assert trace.num_experts == 8
    assert trace.provenance["num_experts_from"] == "largest id + 1"
    assert trace.provenance["format"] == "llama-records"


def test_each_chunk_is_a_sequence_for_the_writer_clears_the_context(written):
    path = written([*RECORDS[:2], *RECORDS[:2]])
    assert read_trace(path).sequence_ids.tolist() == [0, 0, 1, 1]
    assert read_trace(path, chunk_tokens=3).sequence_ids.tolist() == [0, 0, 0, 1]


def test_what_the_user_knows_goes_first(written):
    trace = read_trace(written(), num_experts=60, prompt_tokens=1)
    assert trace.num_experts == 60
    assert trace.provenance["num_experts_from"] == "given"
    assert trace.phases.tolist() == [PREFILL, DECODE, DECODE]


def test_a_last_layer_pruned_to_the_final_token_leaves_the_others_unassigned(written):
    trace = read_trace(written([(0, [[1, 2], [3, 4], [5, 6]]), (1, [[7, 0]]), (0, [[2, 1]]), (1, [[0, 3]])]))
    assert trace.expert_ids[:, 1].tolist() == [[-1, -1], [-1, -1], [7, 0], [0, 3]]


def test_a_prefill_in_pieces_may_have_no_last_layer_but_in_the_last_piece(written):
    trace = read_trace(written([(0, [[1, 2], [3, 4]]), (0, [[5, 6], [7, 0]]), (1, [[7, 0]])]))
    assert trace.expert_ids[:, 1].tolist() == [[-1, -1], [-1, -1], [-1, -1], [7, 0]]
    assert trace.event_ids.tolist() == [0, 0, 1, 1]


def test_many_records_of_changing_length_equal_the_slow_reading(tmp_path):
    rng = np.random.default_rng(0)
    tokens, data = [], b""
    for _ in range(60):
        count = int(rng.choice([1, 1, 1, 4]))
        chosen = np.argsort(rng.random((3, count, 16)), axis=-1)[..., :4]
        data += b"".join(record(layer, chosen[layer]) for layer in range(3))
        tokens += chosen.transpose(1, 0, 2).tolist()
    path = tmp_path / "long.bin"
    path.write_bytes(data)
    assert read_trace(path).expert_ids.tolist() == tokens


def test_a_last_pass_that_the_end_cuts_short_is_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="last forward pass, from record 4 on, is left out"):
        trace = read_trace(written([*RECORDS, (3, [[0, 1]])]))
    assert trace.num_tokens == 3


@pytest.mark.parametrize(
    ("records", "tail", "rule"),
    [
        ([], b"", "empty"),
        (RECORDS, b"\1\0", "32-bit"),
        (RECORDS, struct.pack("<2i", 3, 1), "record 4 at byte 96 must have a header of 3"),
        (RECORDS, struct.pack("<3i", 3, 2, 2) + b"\0" * 12, "record 4 at byte 96 .* head -c 96"),
        (RECORDS, struct.pack("<3i", 3, 2**31 - 1, 2), "record 4 at byte 96 must lie in the file"),
        (RECORDS, struct.pack("<3i", 3, -5, 2), "at least one token, got -5"),
        (RECORDS, struct.pack("<3i", 3, 1, 0), "k from 1 to 1024, got 0"),
        (RECORDS, record(3, [[1, 2, 3]]), "the k of the first record, 2, got 3"),
        (RECORDS, record(-1, [[1, 2]]), "record 4 must have a layer from 0 to 65535, got -1"),
        ([(0, [[0, -4]])], b"", "record 0 must hold expert ids >= 0, got -4"),
        ([(0, [[3, 3]])], b"", "once a token and layer, got 3 twice"),
        ([*RECORDS[:3], *RECORDS], b"", "forward pass 1, which starts with record 2, must have all 2 layers, got 1"),
        ([(0, [[1, 2]]), (1, [[3, 4], [1, 2]]), (2, [[3, 4]])] * 2, b"", "record 0: layer 0 .* got 1 of 2"),
    ],
)
def test_a_broken_record_is_named(written, refused, records, tail, rule):
    message = refused(written(records, tail), "llama-records")
    assert re.search(rule, message), message


def test_an_option_that_the_file_contradicts_is_refused(written, refused):
    assert "top_k 4 against 2" in refused(written(), top_k=4)
    assert "num_layers 3 against 2" in refused(written(), num_layers=3)
    assert "num_experts 6 (given), got 7" in refused(written(), num_experts=6)


def test_memory_is_bounded_before_it_is_taken(written, refused):
    assert "max_bytes 100" in refused(written(), max_bytes=100)


def test_a_flat_copy_of_the_strided_top_k_is_recognised(written, refused):
    rng = np.random.default_rng(1)
    experts, top_k, tokens = 8, 2, 16

    def argsort_rows():
        return np.argsort(rng.random((tokens, experts)), axis=-1)

    right = [(layer, argsort_rows()[:, :top_k]) for layer in range(2)]
    wrong = [(layer, argsort_rows().reshape(-1)[: tokens * top_k].reshape(tokens, top_k)) for layer in range(2)]
    assert read_trace(written(right)).num_tokens == tokens
    message = refused(written(wrong))
    assert "8 whole rankings of all 8 experts" in message
    assert "without its stride" in message


def test_few_tokens_that_share_out_the_experts_by_chance_are_no_flat_copy(written):
    assert read_trace(written([(0, [[0, 1], [2, 3]]), (1, [[3, 2], [0, 1]])])).num_tokens == 2
