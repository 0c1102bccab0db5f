"""Documents to token rows: row by row, borders kept, batches invisible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import DataError
from stickymoe.data import tokenise as module
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.progress import silent
from stickymoe.data.source import Document
from stickymoe.data.tokenise import tokenise

TOKENIZER = train_byte_bpe(["ab ba abba " * 20], 264)
documents_of_rows = st.lists(st.lists(st.text(alphabet="ab \n", max_size=12), max_size=4), min_size=1, max_size=5)


def run(rows, ends_documents=False, progress=silent):
    documents = [Document(str(index), tuple(each)) for index, each in enumerate(rows)]
    return tokenise(documents, TOKENIZER, what="x", ends_documents=ends_documents, progress=progress)


@given(documents_of_rows, st.booleans(), st.sampled_from([1, 5, 1 << 20]))
def test_tokens_are_those_of_each_row_alone_whatever_the_batch(rows, ends_documents, batch_characters):
    expected = [[token for row in document for token in TOKENIZER.encode(row).ids] for document in rows]
    if ends_documents:
        expected = [[*ids, 0] if document else ids for document, ids in zip(rows, expected, strict=True)]
    before = module.BATCH_CHARACTERS
    module.BATCH_CHARACTERS = batch_characters
    try:
        if not any(expected):
            with pytest.raises(DataError, match="x must not be empty"):
                run(rows, ends_documents)
            return
        result = run(rows, ends_documents)
    finally:
        module.BATCH_CHARACTERS = before
    assert result.tokens.tolist() == [token for ids in expected for token in ids]
    assert result.document_lengths.tolist() == [len(ids) for ids in expected]
    split = result.as_split()
    assert split.document_ids.tolist() == [index for index, ids in enumerate(expected) for _ in ids]


def test_text_that_spells_the_end_of_text_token_stays_text():
    tokens = run([["a<|endoftext|>b"]], ends_documents=True).tokens.tolist()
    assert tokens.index(0) == len(tokens) - 1
    assert TOKENIZER.decode(tokens[:-1]) == "a<|endoftext|>b"
    assert TOKENIZER.encode("<|endoftext|>").ids == [0]


def test_progress_is_told_in_characters_up_to_the_total():
    calls = []
    run([["ab"], ["ba", "a"]], progress=lambda *call: calls.append(call))
    assert calls == [("tokenising x", 0, 5), ("tokenising x", 5, 5)]
