"""Chunks: the paper's batching, borders of documents, padding of ragged ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.chunks import TokenChunks, collate_chunks
from stickymoe.data.corpus import TokenSplit


def split_of(tokens, document_ids=None):
    ids = np.zeros(len(tokens)) if document_ids is None else np.asarray(document_ids)
    return TokenSplit(np.asarray(tokens, dtype=np.int32), ids.astype(np.int32))


def test_chunks_of_a_hand_worked_row():
    # tokens     10 11 12 | 13 14 15 | 16 17      T = 3; 16 is the last target of chunk 1; 17 would be a tail's
    chunks = TokenChunks(split_of(range(10, 18), [0, 0, 1, 1, 1, 2, 2, 2]), 3)
    assert len(chunks) == 2
    assert {name: tensor.tolist() for name, tensor in chunks[0].items()} == {
        "input_ids": [10, 11, 12],
        "shift_labels": [11, 12, 13],
        "document_ids": [0, 0, 1],
    }
    assert chunks[-1]["input_ids"].tolist() == [13, 14, 15]
    assert chunks[1]["shift_labels"].tolist() == [14, 15, 16]
    assert all(tensor.dtype == torch.int64 for tensor in chunks[0].values())


def test_a_kept_tail_is_the_rest():
    chunks = TokenChunks(split_of(range(10, 18)), 3, keep_tail=True)
    assert len(chunks) == 3
    assert chunks[2]["input_ids"].tolist() == [16]
    assert chunks[2]["shift_labels"].tolist() == [17]


@given(num_tokens=st.integers(2, 60), seq_len=st.integers(1, 70))
def test_with_the_tail_every_token_but_the_first_is_predicted_exactly_once(num_tokens, seq_len):
    chunks = TokenChunks(split_of(range(num_tokens)), seq_len, keep_tail=True)
    rows = list(chunks)
    assert len(rows) == len(chunks)
    assert torch.cat([row["shift_labels"] for row in rows]).tolist() == list(range(1, num_tokens))
    assert torch.cat([row["input_ids"] for row in rows]).tolist() == list(range(num_tokens - 1))


@given(num_tokens=st.integers(2, 60), seq_len=st.integers(1, 59))
def test_without_the_tail_chunks_are_whole_and_as_many_as_fit(num_tokens, seq_len):
    if num_tokens <= seq_len:
        with pytest.raises(DataError, match=f">= {seq_len + 1} tokens.*got {num_tokens}"):
            TokenChunks(split_of(range(num_tokens)), seq_len)
        return
    chunks = TokenChunks(split_of(range(num_tokens)), seq_len)
    assert len(chunks) == (num_tokens - 1) // seq_len
    for index, row in enumerate(chunks):
        assert row["input_ids"].tolist() == list(range(index * seq_len, (index + 1) * seq_len))
        assert (row["shift_labels"] == row["input_ids"] + 1).all()


def test_document_ids_stay_away_when_documents_are_not_respected():
    assert set(TokenChunks(split_of(range(9)), 4, respect_documents=False)[0]) == {"input_ids", "shift_labels"}


@pytest.mark.parametrize("keep_tail", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1])
def test_a_split_without_a_target_is_refused(num_tokens, keep_tail):
    with pytest.raises(DataError, match=f"got {num_tokens}; lower seq_len or give more text"):
        TokenChunks(split_of(range(num_tokens)), 4, keep_tail=keep_tail)


def test_seq_len_below_one_is_refused():
    with pytest.raises(SettingError, match="seq_len must be >= 1, got 0"):
        TokenChunks(split_of(range(9)), 0)


@pytest.mark.parametrize("index", [2, -3])
def test_a_chunk_out_of_range_is_an_index_error(index):
    with pytest.raises(IndexError):
        TokenChunks(split_of(range(9)), 4)[index]


def test_chunks_do_not_lend_out_the_corpus_itself():
    split = split_of(range(9))
    TokenChunks(split, 4)[0]["input_ids"].zero_()
    assert split.tokens.tolist() == list(range(9))


def test_borders_may_be_for_pairs_alone_when_attention_runs_on():
    split = split_of(range(10, 18), [0, 0, 1, 1, 1, 2, 2, 2])
    chunks = TokenChunks(split, 3, respect_documents=False, pair_borders=True, keep_tail=True)
    assert chunks[0].keys() == {"input_ids", "shift_labels", "pair_document_ids"}
    batch = collate_chunks([chunks[0], chunks[2]])
    assert "document_ids" not in batch
    assert batch["pair_document_ids"].tolist() == [[0, 0, 1], [2, 2, 2]], "padded like document_ids"
    assert "pair_document_ids" not in collate_chunks([chunks[2]]), "no border, nothing to say"
    both = TokenChunks(split, 3, pair_borders=True)
    assert both[0].keys() == {"input_ids", "shift_labels", "document_ids"}, "attention ends there already"


def test_rows_of_one_length_get_no_mask():
    chunks = TokenChunks(split_of(range(9)), 4)
    batch = collate_chunks([chunks[1], chunks[0]])
    assert set(batch) == {"input_ids", "shift_labels"}
    assert batch["input_ids"].tolist() == [[4, 5, 6, 7], [0, 1, 2, 3]]


def test_documents_are_kept_for_all_rows_when_one_row_has_a_border():
    chunks = TokenChunks(split_of(range(9), [0, 0, 0, 0, 1, 1, 2, 2, 2]), 4)
    batch = collate_chunks([chunks[0], chunks[1]])
    assert batch["document_ids"].tolist() == [[0, 0, 0, 0], [1, 1, 2, 2]]
    assert "document_ids" not in collate_chunks([chunks[0]])


def test_a_ragged_tail_is_padded_on_the_right_beside_document_borders():
    chunks = TokenChunks(split_of(range(10, 17), [0, 0, 1, 1, 1, 1, 1]), 4, keep_tail=True)
    batch = collate_chunks([chunks[1], chunks[0]])
    assert batch["input_ids"].tolist() == [[14, 15, 0, 0], [10, 11, 12, 13]]
    assert batch["shift_labels"].tolist() == [[15, 16, -100, -100], [11, 12, 13, 14]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["document_ids"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]


@given(num_tokens=st.integers(2, 40), seq_len=st.integers(1, 9), batch_size=st.integers(1, 5))
def test_batches_predict_what_the_chunks_predict(num_tokens, seq_len, batch_size):
    chunks = TokenChunks(split_of(range(num_tokens)), seq_len, keep_tail=True)
    loader = torch.utils.data.DataLoader(chunks, batch_size=batch_size, collate_fn=collate_chunks)
    targets = torch.cat([batch["shift_labels"].flatten() for batch in loader])
    assert targets[targets != -100].tolist() == list(range(1, num_tokens))
