"""Pieces of a text file that end where a line ends."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import TraceError


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.text("ab\n", max_size=60), size=st.integers(1, 70))
def test_pieces_are_the_file_and_know_their_first_line(tmp_path, data, size):
    from stickymoe.traces.importers.lines import blocks_of_lines

    path = tmp_path / "text"
    path.write_text(data)
    pieces = list(blocks_of_lines(path, size))
    assert b"".join(piece for _, piece in pieces).decode() == data
    before = 0
    for first, piece in pieces:
        assert first == data.encode()[:before].count(b"\n") + 1
        before += len(piece)
    assert all(piece.endswith(b"\n") for _, piece in pieces[:-1])


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    from stickymoe.traces.importers import lines

    monkeypatch.setattr(lines, "LONGEST_LINE", 100)
    path = tmp_path / "text"
    path.write_bytes(b"first\n" + b"x" * 1000)
    with pytest.raises(TraceError, match="line 2 must be at most 100 bytes"):
        list(lines.blocks_of_lines(path, 50))
