"""Rows keep documents apart and predict every token of a document but its first, packed or padded."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.encoding import EncodedText
from stickymoe.data.rows import PackedRows, PaddedRows, collate_rows


def text(*tokens, counted=None):
    return EncodedText(np.array(tokens, np.int32), None if counted is None else np.array(counted, bool))


TEXTS = [text(1, 2, 3), text(4, 5), text(6, 7, 8, 9)]
lengths = st.lists(st.integers(2, 9), min_size=1, max_size=6)


def listed(row):
    return {name: values.tolist() for name, values in row.items()}


def test_packed_rows_by_hand():
    rows = PackedRows(TEXTS, 4, keep_tail=False)
    assert len(rows) == 2
    assert listed(rows[0]) == {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, -100], "position_ids": [0, 1, 2, 0]}
    # what the row before cut off begins anew
    assert listed(rows[1]) == {"input_ids": [5, 6, 7, 8], "labels": [5, -100, 7, 8], "position_ids": [0, 0, 1, 2]}
    assert rows.row_tokens().tolist() == [4, 4]


def test_a_tail_is_kept_if_wanted_or_if_there_is_nothing_else():
    assert PackedRows(TEXTS, 7, keep_tail=True).row_tokens().tolist() == [7, 2]
    assert PackedRows(TEXTS, 7).row_tokens().tolist() == [7]
    assert PackedRows(TEXTS, 8, keep_tail=True).row_tokens().tolist() == [8]  # one token predicts nothing
    assert PackedRows(TEXTS, 20).row_tokens().tolist() == [9]


def test_a_document_longer_than_a_row_goes_on_with_positions_from_zero():
    rows = PackedRows([text(*range(10, 20))], 4, keep_tail=True)
    assert [row["position_ids"].tolist() for row in rows] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]]
    assert [row["labels"].tolist() for row in rows] == [[-100, 11, 12, 13], [14, 15, 16, 17], [18, 19]]


def test_padded_rows_by_hand():
    rows = PaddedRows(TEXTS, 3)
    batch = collate_rows([rows[index] for index in range(len(rows))])
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 5, 0], [6, 7, 8]]
    assert batch["labels"].tolist() == [[-100, 2, 3], [-100, 5, -100], [-100, 7, 8]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert rows.row_tokens().tolist() == [3, 2, 3]
    assert set(batch) == {"input_ids", "labels", "attention_mask"}


def test_what_does_not_count_is_no_label():
    chat = text(1, 2, 3, 4, counted=[True, False, True, False])
    assert PackedRows([chat], 4)[0]["labels"].tolist() == [-100, -100, 3, -100]
    assert PaddedRows([chat], 4)[0]["labels"].tolist() == [-100, -100, 3, -100]


@settings(max_examples=30, deadline=None)
@given(lengths=lengths, seq_len=st.integers(2, 7))
def test_packing_holds_every_token_once_and_borders_where_documents_begin(lengths, seq_len):
    tokens = iter(range(1, 1000))
    texts = [text(*[next(tokens) for _ in range(length)]) for length in lengths]
    rows = PackedRows(texts, seq_len, keep_tail=True)
    flat = torch.cat([row["input_ids"] for row in rows]).tolist()
    whole = [int(token) for each in texts for token in each.tokens]
    assert flat == whole[: len(flat)]
    assert len(whole) - len(flat) <= 1
    firsts = {int(each.tokens[0]) for each in texts}
    for row in rows:
        places, ids = row["position_ids"].tolist(), row["input_ids"].tolist()
        assert places[0] == 0
        for left, right in zip(range(len(ids)), range(1, len(ids)), strict=False):
            assert (places[right] == 0) == (ids[right] in firsts)
            assert places[right] in (0, places[left] + 1)
        expected = [-100 if token in firsts else token for token in ids]
        assert row["labels"].tolist() == expected


@settings(max_examples=30, deadline=None)
@given(lengths=lengths, seq_len=st.integers(2, 7))
def test_padding_keeps_each_document_to_its_own_rows(lengths, seq_len):
    texts = [text(*range(10 * number, 10 * number + length)) for number, length in enumerate(lengths, 1)]
    rows = PaddedRows(texts, seq_len)
    for row, tokens in zip(rows, rows.row_tokens(), strict=False):
        assert len(row["input_ids"]) == tokens <= seq_len
        assert len({token // 10 for token in row["input_ids"].tolist()}) == 1


def test_packed_rows_of_unlike_length_make_no_batch():
    rows = PackedRows(TEXTS, 7, keep_tail=True)
    with pytest.raises(DataError, match=r"^packed rows of a batch must be of one length, got 2 to 7$"):
        collate_rows([rows[0], rows[1]])


@pytest.mark.parametrize("kind", [PackedRows, PaddedRows])
def test_one_token_is_no_row_and_places_outside_are_refused(kind):
    with pytest.raises(SettingError, match=r"^seq_len must be >= 2, got 1; neighbours are compared$"):
        kind(TEXTS, 1)
    with pytest.raises(IndexError):
        kind(TEXTS, 4)[9]
