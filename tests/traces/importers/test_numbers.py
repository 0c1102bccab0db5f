"""All numbers of a text at once."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.traces.importers.numbers import numbers_in


@given(st.lists(st.one_of(st.integers(0, 10**18 - 1).map(lambda each: b" %d" % each), st.binary()), min_size=1))
def test_runs_of_digits_are_the_numbers(parts):
    text = b"\n0\n".join([*parts, b""])
    runs = re.findall(rb"[0-9]+", text)
    if max(map(len, runs)) <= 18:
        assert numbers_in(text).tolist() == [int(run) for run in runs]


@pytest.mark.parametrize("text", [b"7", b"\n\n[7]\r\n", b'"7"', b"x" * 2**20 + b"7" + b"," * 2**20])
def test_nothing_else_matters(text):
    assert numbers_in(text).tolist() == [7]
