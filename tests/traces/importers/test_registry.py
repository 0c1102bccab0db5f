"""Any trace is opened by its content, and nothing a file does reaches the user as more than a line."""

import dataclasses

import numpy as np
import pytest

from stickymoe.core.errors import SettingError, TraceError
from stickymoe.traces import RoutingTrace, read_trace
from stickymoe.traces.importers import registry
from stickymoe.traces.importers.importer import Importer

TRACE = RoutingTrace(np.array([[[0, 1]], [[1, 2]]]), np.array([0, 0]), 4, provenance={"model": "tiny"})


@pytest.fixture
def saved(tmp_path):
    TRACE.save(tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def test_our_own_files_come_back_exactly_whatever_their_name(saved):
    assert read_trace(saved) == TRACE
    assert read_trace(str(saved.rename(saved.with_name("trace.csv")))) == TRACE
    assert read_trace(saved.with_name("trace.csv"), format="stickymoe", num_experts=4) == TRACE
    with pytest.raises(TraceError, match="num_experts 5 against 4 in the file"):
        read_trace(saved.with_name("trace.csv"), num_experts=5)


def test_every_importer_is_listed_under_its_own_name_and_says_what_it_reads():
    for name, importer in registry.IMPORTERS.items():
        assert importer.name == name
        assert importer.what
        assert "\n" not in importer.what


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"PAR1", b"{", b"[]", b"# ", b"\x93NUMPY", b"PK\x03\x04", b"GGUF", b"\xff" * 99]
)
def test_what_nothing_recognises_or_can_read_ends_in_one_line(tmp_path, data):
    (tmp_path / "dump.bin").write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "dump.bin")
    assert str(caught.value).startswith(str(tmp_path / "dump.bin"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", registry.IMPORTERS)
@pytest.mark.parametrize("data", [b"", b"\0", b"{", b"1", b"a,b\n", b"\xff" * 99])
def test_a_format_forced_upon_a_file_that_is_not_of_it_ends_in_one_line(tmp_path, name, data):
    (tmp_path / "dump.bin").write_bytes(data)
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "dump.bin", format=name)
    assert str(tmp_path / "dump.bin") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="found nothing"):
        read_trace(tmp_path / "absent")
    with pytest.raises(TraceError, match="found a folder"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"format": "stickymo"}, "format must be one of .*did you mean 'stickymoe'"),
        ({"num_expert": 3}, "one of num_experts, .* got 'num_expert'; did you mean 'num_experts'"),
        ({"num_experts": 0}, "num_experts must be >= 1, got 0"),
        ({"num_experts": 2.0}, "num_experts must be a whole number, got 2.0"),
        ({"top_k": True}, "top_k must be a whole number"),
        ({"prompt_tokens": -1}, "prompt_tokens must be >= 0"),
    ],
)
def test_a_wrong_option_is_named(saved, asked, words):
    with pytest.raises(SettingError, match=words):
        read_trace(saved, **asked)
    assert read_trace(saved, num_experts=None, top_k=None) == TRACE


@pytest.mark.parametrize(
    "error", [ValueError("a\nb"), KeyError("x"), MemoryError(), OSError(5, "broken"), IndexError(), RecursionError()]
)
def test_whatever_a_parser_throws_becomes_one_line_with_the_files_name(saved, monkeypatch, error):
    def fail(*arguments: object) -> RoutingTrace:
        raise error

    monkeypatch.setitem(registry.IMPORTERS, "bad", Importer("bad", "A bad one", lambda head: True, fail))
    with pytest.raises(TraceError, match="is not a readable bad file") as caught:
        read_trace(saved, format="bad")
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_of_a_foreign_format_says_which(saved, monkeypatch):
    foreign = Importer("foreign", "Another", lambda head: True, lambda path, options: dataclasses.replace(TRACE))
    monkeypatch.setitem(registry.IMPORTERS, "foreign", foreign)
    assert read_trace(saved, format="foreign").provenance == {"model": "tiny", "format": "foreign"}
