"""What importers are told: a file's head, and what the user knows."""

from pathlib import Path

import pytest

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import HEAD_BYTES, Head, ReadOptions


def test_the_head_of_a_text_is_its_whole_lines(tmp_path):
    path = tmp_path / "Trace.CSV"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n\n 1,2 ")
    head = Head.of(path)
    assert (head.suffix, head.size, head.is_whole) == (".csv", 14, True)
    assert head.lines == ["a,b", "1,2"]
    path.write_text("0123456789abcde\n" * (HEAD_BYTES // 16) + "more")
    head = Head.of(path)
    assert (len(head.data), head.is_whole) == (HEAD_BYTES, False)
    path.write_text("0123456789\n" * HEAD_BYTES)
    assert set(Head.of(path).lines) == {"0123456789"}


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"a\0b", b"\xc3"])
def test_what_is_no_text_has_no_lines(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    assert Head.of(tmp_path / "file").text is None
    assert Head.of(tmp_path / "file").lines == []


def test_a_folder_has_an_empty_head_and_nothing_has_none(tmp_path):
    assert Head.of(tmp_path) == Head(tmp_path, b"", 0)
    with pytest.raises(TraceError, match="found nothing"):
        Head.of(tmp_path / "absent")
    with pytest.raises(TraceError, match="no regular file"):
        Head.of(Path("/dev/null"))


@pytest.mark.parametrize(
    ("given", "declared", "largest", "expected"),
    [
        (8, None, 3, (8, "given")),
        (None, 8, 3, (8, "declared")),
        (8, 8, 7, (8, "given")),
        (None, None, 3, (4, "largest id + 1")),
        (None, None, -1, (1, "largest id + 1")),
    ],
)
def test_the_number_of_experts_is_never_guessed_in_silence(given, declared, largest, expected):
    assert ReadOptions(num_experts=given).experts(declared, largest) == expected


@pytest.mark.parametrize(
    ("given", "declared", "largest", "words"),
    [
        (8, 16, 3, "num_experts 8 against 16 in the file"),
        (4, None, 4, r"below num_experts 4 \(given\), got 4"),
        (None, 4, 5, r"below num_experts 4 \(declared\), got 5"),
        (None, 0, 0, "num_experts must be a whole number from 1"),
    ],
)
def test_a_number_of_experts_that_cannot_be_is_refused(given, declared, largest, words):
    with pytest.raises(TraceError, match=words):
        ReadOptions(num_experts=given).experts(declared, largest)


def test_memory_is_refused_before_it_is_taken():
    ReadOptions(max_bytes=10).require_room(10, "3 tokens")
    with pytest.raises(TraceError, match="max_bytes 10, got 3 tokens of 11 bytes"):
        ReadOptions(max_bytes=10).require_room(11, "3 tokens")
