"""JSON Lines under every usual spelling, and what is wrong in them told with its line."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data.jsonl import read_jsonl, stream_jsonl


@pytest.fixture
def write(tmp_path):
    def written(*lines):
        path = tmp_path / "rows.jsonl"
        path.write_bytes(b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
        return path

    return written


def test_rows_come_with_their_lines_and_blank_lines_are_passed_over(write):
    rows, file = read_jsonl(write({"text": "one"}, b"", b"   ", {"content": "two"}))
    assert rows == [(1, "one"), (4, "two")]
    assert (file.name, file.num_bytes) == ("rows.jsonl", (write({"text": "one"}).parent / "rows.jsonl").stat().st_size
                                           + len(b'\n\n   \n{"content": "two"}'))  # fmt: skip


def test_a_stream_gives_the_same_rows_and_looks_at_nothing_before_it_is_reached(write):
    rows = stream_jsonl(write({"text": "one"}, b"", {"prompt": "two"}, b"{"))
    assert [next(rows), next(rows)] == [(1, "one"), (3, "two")]
    with pytest.raises(DataError, match="line 4 must be one JSON object"):
        next(rows)
    assert list(stream_jsonl(write(b""))) == []


def test_a_byte_order_mark_is_no_text(write):
    assert read_jsonl(write(b'\xef\xbb\xbf{"text": "one"}'))[0] == [(1, "one")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"text": ', "line 2 must be one JSON object, got expecting value at column 10; mend or delete the line"),
        (b'{"text": "a"} {', "line 2 must be one JSON object, got extra data at column 15; mend or delete the line"),
        (b"[1, 2]", "line 2 must be a JSON object, got list"),
        (b'{"text": "\xff"}', "line 2 must be UTF-8, but byte 10 cannot be decoded; convert the file"),
        (b'{"title": "a"}', "line 2 must have a text that is not empty, under a key such as .*; got 'title'"),
        (b'{"text": "  "}', "line 2 must have a text that is not empty, .*; got 'text'"),
        (b"{}", "line 2 must have a text that is not empty, .*; got no keys"),
        (b"[" * 100_000, "line 2 must be one JSON object, got one nested too deep; mend or delete the line"),
    ],
)
def test_a_broken_line_is_named(write, line, message):
    with pytest.raises(DataError, match=rf"rows.jsonl {message}$"):
        read_jsonl(write({"text": "one"}, line))
    with pytest.raises(DataError, match=rf"rows.jsonl {message}$"):  # nor does the line's end move the column
        read_jsonl(write({"text": "one"}, line, b""))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text('{"text": []}\n,1', max_size=60).map(str.encode))
def test_whatever_a_file_holds_it_is_rows_or_one_line_of_refusal(tmp_path, content):
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        assert read_jsonl(path)[0]


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_an_empty_file_is_refused(write, content):
    with pytest.raises(DataError, match=r"rows.jsonl must not be empty, it holds no row; name a file that does$"):
        read_jsonl(write(content))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"^data must be an existing file, got '.*none.jsonl'$"):
        read_jsonl(tmp_path / "none.jsonl")


def test_a_line_too_long_for_text_is_refused_before_it_is_held(write, monkeypatch):
    monkeypatch.setattr("stickymoe.data.jsonl.LONGEST_LINE", 20)
    with pytest.raises(DataError, match=r"line 2 must be at most 20 bytes; is this a JSON Lines file\?$"):
        read_jsonl(write({"text": "one"}, {"text": "one and two and three"}))


def test_progress_is_told_in_bytes(write, monkeypatch):
    monkeypatch.setattr("stickymoe.data.jsonl.ROWS_A_REPORT", 2)
    told = []
    path = write(*[{"text": "one"}] * 5)
    read_jsonl(path, lambda *seen: told.append(seen))
    assert told == [("reading rows.jsonl", 32, 79), ("reading rows.jsonl", 64, 79)]
