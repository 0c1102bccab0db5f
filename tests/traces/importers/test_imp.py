"""imp's expert traces: records, or the same numbers flat."""

import json

import pytest

from stickymoe.traces import DECODE, read_trace

RECORDS = [[1, 10, 7], [2, 4, 5], [1, 7, 3], [2, 5, 6]]
IDS = [[[10, 7], [4, 5]], [[7, 3], [5, 6]]]


@pytest.fixture
def written(tmp_path):
    def write(document):
        path = tmp_path / "trace.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


FLAT = [number for record in RECORDS for number in record]


@pytest.mark.parametrize(
    "document", [RECORDS, {"trace": RECORDS}, {"entries": FLAT, "top_k": 2}, {"data": RECORDS, "top_k": 2}]
)
def test_every_layout_reads_the_same(written, document):
    trace = read_trace(written(document))
    assert trace.expert_ids.tolist() == IDS
    assert trace.layer_names == ("1", "2")
    assert trace.phases.tolist() == [DECODE, DECODE]
    assert trace.provenance["format"] == "imp"
    assert trace.num_experts == 11


def test_a_bare_flat_list_needs_k(written, refused):
    assert "top_k must be given" in refused(written(FLAT), "imp")
    assert read_trace(written(FLAT), "imp", top_k=2).expert_ids.tolist() == IDS


@pytest.mark.parametrize(
    ("document", "rule"),
    [
        ("", "empty"),
        ("[[1, 2], [1,", "must be JSON"),
        ([], "at least one record"),
        ({"other": RECORDS}, "under one of trace, entries, data"),
        (3, "got int"),
        ([[1], [2]], "record 0 must be a layer and its experts"),
        ([[1, 2, 3], [1, 2]], "got 2"),
        ([[1, 2, 3.5]], "whole numbers, got a float"),
        ([[1, 2, True]], "whole numbers, got a bool"),
        ([[1, 2, -3]], "record 0 must hold numbers from 0 to 2**31 - 1, got -3"),
        ([[1, 2, 2**40]], "record 0 must hold numbers"),
        ([[1, 2, 10**30]], "64 bits"),
        ([[1, 2, 2]], "got 2 twice"),
        ({"trace": FLAT[:-1], "top_k": 2}, "record 3 must be a layer and 2 experts, got 2 numbers"),
        ({"trace": RECORDS, "top_k": 3}, "top_k 3 against 2"),
        ({"trace": RECORDS, "top_k": "2"}, "top_k must be a whole number"),
        ([*RECORDS, [1, 2, 3], [3, 1, 2]], "must have all 3 layers"),
    ],
)
def test_a_broken_document_is_refused_in_one_line(written, refused, document, rule):
    assert rule in refused(written(document), "imp")


def test_what_unicode_takes_for_a_blank_or_a_digit_is_no_part_of_a_number(written, refused):
    # Between numbers, separators of records are as good as blanks to a regular expression, but not to int()
    assert "must be JSON" in refused(written("[[0, 0, 10], [0, 2, 1], [1,\x1e\x1e 3, 8]]"))
    assert "must be JSON" in refused(written("[[\u0661, 0, 10], [\u0661, 2, 1]]"), "imp")


def test_a_load_table_is_not_taken_for_a_trace(written):
    from stickymoe.traces import UsageProfile

    assert isinstance(read_trace(written([[90, 132, 40], [20, 107, 104]])), UsageProfile)
