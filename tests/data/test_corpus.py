"""The corpus types: what they refuse, what they count."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from stickymoe.core.errors import DataError
from stickymoe.data.corpus import Corpus, Splits, TokenSplit, describe_corpus


def int32(values):
    return np.asarray(values, dtype=np.int32)


def test_a_split_counts_its_tokens_and_documents():
    split = TokenSplit(int32([5, 6, 7, 8]), int32([0, 0, 3, 4]))
    assert (split.num_tokens, split.num_documents) == (4, 3)
    assert TokenSplit(int32([]), int32([])).num_documents == 0


@pytest.mark.parametrize(
    ("tokens", "document_ids", "rule"),
    [
        (np.zeros(2), int32([0, 0]), "tokens must be a one-dimensional int32 array"),
        (int32([1, 2]), int32([[0, 0]]), "document_ids must be a one-dimensional int32 array"),
        (int32([1, 2]), int32([0]), r"as long as tokens \(2\), got 1"),
        (int32([1, 2]), int32([1, 0]), "must never decrease"),
    ],
)
def test_a_split_refuses_what_breaks_its_rules(tokens, document_ids, rule):
    with pytest.raises(DataError, match=rule):
        TokenSplit(tokens, document_ids)


def test_an_absent_split_names_the_file_looked_for_even_after_pickling():
    splits = Splits("wikitext-2-raw", {"test": TokenSplit(int32([1]), int32([0]))}, {"train": "x/wiki.train.raw"})
    for table in (splits, pickle.loads(pickle.dumps(splits))):
        with pytest.raises(DataError, match=r"must be one of test, got 'train'; looked for x/wiki\.train\.raw"):
            table["train"]
        with pytest.raises(DataError, match=r"got 'dev'$"):
            table["dev"]
        assert table["test"].tokens.tolist() == [1]


def test_a_corpus_is_described_split_by_split(letters):
    from stickymoe.data import load_corpus

    corpus = load_corpus(str(letters))
    assert isinstance(corpus, Corpus)
    assert describe_corpus(corpus) == [
        {"split": name, "documents": documents, "tokens": len(corpus.splits[name].tokens)}
        for name, documents in (("train", 8), ("validation", 1), ("test", 1))
    ]
