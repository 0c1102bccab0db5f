"""Damaged files, some thousand on every run: no importer crashes, hangs, or takes memory that a file only claims."""

import re
import runpy
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TARGET = runpy.run_path(str(Path(__file__).with_name("fuzz_importers.py")))
SEEDS = TARGET["seeds"]()
NAMES = [f"{seed.format}-{number}" for number, seed in enumerate(SEEDS)]
# Numbers that readers trip over
NASTY = [b"-1", b"0", b"1", b"127", b"128", b"65536", b"2147483648", b"9223372036854775808", b"1e308", b"nan", b"-inf"]
NASTY += [b"9" * 40, b"null", b"true", b'"x"', b"[]", b"{}", b"", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b","]
NASTY += [
    (value % 2**bits).to_bytes(bits // 8, "little") for bits in (16, 32, 64) for value in (-1, 2 ** (bits - 1), 0)
]


@st.composite
def damaged(draw, data: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["cut", "byte", "delete", "repeat", "nasty", "number", "swap"]))
        if kind == "cut":
            data = data[:at]
        elif kind == "byte":
            data = data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
        elif kind == "delete":
            data = data[:at] + data[at + length :]
        elif kind == "repeat":
            data = data[: at + length] * draw(st.integers(1, 3)) + data[at:]
        elif kind == "nasty":
            data = data[:at] + draw(st.sampled_from(NASTY)) + data[at + length :]
        elif kind == "number":  # the whole number at or after `at` gives way
            number = re.compile(rb"\d+").search(data, at)
            start, stop = number.span() if number else (at, at)
            data = data[:start] + draw(st.sampled_from(NASTY)) + data[stop:]
        else:
            data = data[:at] + data[at + length : at + 2 * length] + data[at : at + length] + data[at + 2 * length :]
    return data


@pytest.mark.parametrize("seed", SEEDS, ids=NAMES)
def test_the_seed_itself_is_read(seed, tmp_path):
    assert TARGET["check"](seed, seed.data, tmp_path)


@pytest.mark.parametrize("seed", SEEDS, ids=NAMES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_ends_in_a_trace_or_in_one_line(seed, tmp_path, data):
    content = data.draw(damaged(seed.data))
    tracemalloc.start()
    try:
        TARGET["check"](seed, content, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 16 * TARGET["MAX_BYTES"]
    finally:
        tracemalloc.stop()
