"""The split rules: fixed, whole, never empty."""

from __future__ import annotations

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.core.errors import DataError
from stickymoe.data.source import Document
from stickymoe.data.splitting import split_by_document, split_by_position


def documents(count):
    return [Document(f"{number:04}.txt", ("text",)) for number in range(count)]


@given(st.integers(3, 300))
def test_each_document_is_in_one_split_of_the_right_size(count):
    parts = split_by_document("x", documents(count))
    assert sorted(document.name for part in parts.values() for document in part) == [
        document.name for document in documents(count)
    ]
    held_out = max(1, round(count / 40))
    assert [len(parts[split]) for split in ("train", "validation", "test")] == [
        count - 2 * held_out,
        held_out,
        held_out,
    ]


def test_the_split_hangs_on_names_alone_and_keeps_their_order():
    shuffled = documents(80)
    random.Random(0).shuffle(shuffled)
    assert split_by_document("x", shuffled) == split_by_document("x", documents(80))
    ranked = sorted((document.name for document in shuffled), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    parts = split_by_document("x", shuffled)
    assert [document.name for document in parts["validation"]] == sorted(ranked[:2])
    assert [document.name for document in parts["test"]] == sorted(ranked[2:4])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_documents_are_refused(count):
    with pytest.raises(DataError, match=f"must have >= 3 documents that are not empty, x has {count}; add documents"):
        split_by_document("x", documents(count))


def test_a_text_of_equal_lines_is_cut_at_95_and_97_and_a_half_percent():
    parts = split_by_position("x", "".join(f"{number:03}\n" for number in range(200)))
    assert [len(parts[split]) for split in parts] == [1, 1, 1]
    assert parts["train"][0].rows[0].endswith("189\n")
    assert parts["validation"][0].rows[0] == "190\n191\n192\n193\n194\n"
    assert parts["test"][0].rows[0] == "195\n196\n197\n198\n199\n"


@given(st.text(alphabet="ab\n\r\u2028", min_size=1, max_size=400))
def test_cutting_by_position_loses_and_strips_nothing(text):
    try:
        parts = split_by_position("x", text)
    except DataError:
        return
    assert "".join(part[0].rows[0] for part in parts.values()) == text
    assert all(part[0].rows[0] for part in parts.values())


@pytest.mark.parametrize("text", ["a", "one long line " * 100, "two\nlines\n"])
def test_a_text_with_too_few_lines_is_refused(text):
    with pytest.raises(DataError, match="split of x must not be empty: no line starts in its share"):
        split_by_position("x", text)
