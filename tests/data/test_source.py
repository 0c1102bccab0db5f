"""Reading text as it is, and the fingerprint of what was read."""

from __future__ import annotations

import hashlib

import pytest

from stickymoe.core.errors import DataError
from stickymoe.data.source import SourceFile, TextSource, read_text


def test_text_is_read_as_it_is(tmp_path):
    content = "\ufeff  a\r\nb\n\n é \n".encode()
    (tmp_path / "a.txt").write_bytes(content)
    text, file = read_text(tmp_path / "a.txt", "a.txt")
    assert text.encode() == content
    assert file == SourceFile("a.txt", hashlib.sha256(content).hexdigest(), len(content))


def test_bytes_that_are_not_utf8_are_refused_by_file_and_offset(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=r"a\.txt must be UTF-8 text, but byte 3 cannot be decoded") as caught:
        read_text(tmp_path / "a.txt", "a.txt")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match=r"could not read .*gone\.txt: no such file"):
        read_text(tmp_path / "gone.txt", "gone.txt")


def source(**changes):
    settings = {
        "name": "x",
        "splits": {"train": []},
        "files": [SourceFile("a", "00", 1)],
        "split_rule": "rule",
        "tokenizer": "gpt2",
        "ends_documents": False,
    }
    return TextSource(**(settings | changes))


def test_the_fingerprint_changes_with_what_changes_tokens_and_with_nothing_else():
    changed = [
        source(files=[SourceFile("a", "01", 1)]),
        source(files=[SourceFile("b", "00", 1)]),
        source(split_rule="other"),
        source(ends_documents=True),
        source(splits={"train": [], "test": []}),
    ]
    fingerprints = [each.fingerprint for each in [source(), *changed]]
    assert len(set(fingerprints)) == len(fingerprints)
    assert source(name="y", facts={"package": "z"}).fingerprint == source().fingerprint
