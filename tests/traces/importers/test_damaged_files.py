"""Damaged files of many formats: whatever the bytes, a trace, a profile or one line of error, in little memory."""

import json
import struct
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces import RoutingTrace, UsageProfile, read_trace

ALLOWED = 2**22
# Besides what a reader may take for its arrays: parsers' own
PARSERS = 2**22


def _words(kind, *numbers):
    return np.asarray(numbers, kind).tobytes()


def _gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value

    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
    head += text(b"general.type") + struct.pack("<I", 8) + text(b"imatrix")
    head += text(b"imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + text(b"wiki")
    for layer in (b"0", b"1"):
        name = text(b"blk." + layer + b".ffn_up_exps.weight.counts")
        head += name + struct.pack("<IQQIQ", 2, 1, 4, 0, 32 * int(layer))
    return head + b"\0" * (-len(head) % 32) + _words("<f4", 1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8)


def _mpt():
    facts = {"observation": "full", "n_layers": 2, "n_experts": 8, "top_k": 2}
    header = json.dumps(facts).encode()
    accesses = [(token, layer, expert) for token in range(2) for layer in range(2) for expert in (layer, 5 + token)]
    records = b"".join(struct.pack("<QIHH", 0, *access) for access in accesses)
    return b"MPTRACE\0" + struct.pack("<HHI", 1, 1, len(header)) + header + records


def _megatron():
    sizes = {"block": "decoder", "rank": 0, "num_tokens": 2, "topk": 2}
    lines = [
        json.dumps({"step": step, "layer": layer, **sizes, "top_indices": [[step, 5], [layer, 7]]}) + "\n"
        for step in range(2)
        for layer in (2, 3)
    ]
    return "".join(lines).encode()


LONGSPEAR = (
    b"LONGSPEAR_ROUTE_TRACE v1 model=m experts=9 top_k=2 layers=2 main_layers=2 mode=full endian=little "
    b"record=u16_layer,u16_n_rows,n_rows*top_k*u16_expert\n"
)
WHOLE = {
    "llama-csv": b"layer,expert\n0,1\n0,2\n1,3\n1,4\n0,2\n0,1\n1,5\n1,3\nlayer,expert\n0,3\n0,2\n1,0\n1,1\n",
    "llama-records": _words("<i4", 0, 2, 2, 1, 2, 3, 4, 1, 2, 2, 5, 6, 7, 0, 0, 1, 2, 4, 5, 1, 1, 2, 6, 1),
    "llama-log": b"noise\nEXPERT|L0|T2: [1, 2] [3, 4]\nEXPERT|L1|T2: [5,6] [7,0]\n"
    b"EXPERT|L0|T1: [2,4]\nEXPERT|L1|T1: [1,3]\n",
    "longspear": LONGSPEAR + _words("<u2", 0, 2, 1, 2, 3, 4, 1, 2, 5, 6, 7, 8, 0, 1, 2, 3, 1, 1, 4, 5),
    "moepager": _mpt(),
    "colibri": b"0 0 3 1:0.6000 2:0.4000\n0 1 3 5:0.9 0:0.1\n0 0 4 1:0.7 4:0.3\n0 1 4 3:0.8 1:0.2\n"
    b"0 0 3 2:1 1:0\n0 0 4 5:0.5 1:0.5\n",
    "megatron": _megatron(),
    "imp": b'{"top_k": 2, "trace": [[1, 10, 7], [2, 4, 5], [1, 7, 3], [2, 5, 6]]}',
    "imatrix": _gguf(),
    "eplb": b'{"weight": [[90, 132, 40], [20, 107, 104]]}',
    "coli-usage": b"-1 2 4\n-2 1 3815245270\n0 3 7\n1 0 2\n1 1 9\n2 2 5\n",
}
BINARY = (b"", b"\0", b"\xff" * 4, b"\0" * 8, b"\xff" * 8, b"\x80", b"\1\0\0\0", b"\xff\xff\xff\x7f")
TEXTUAL = (
    b"",
    b"-",
    b"9" * 30,
    b"nan",
    b"1e999",
    b"[" * 50,
    b"\n",
    b"\n\n",
    b" ",
    b":",
    b",",
    b'"',
    b"\xff",
    b"null",
    b"-1",
)


@st.composite
def damage(draw, whole):
    """Cut, replace, repeat or insert, a few times."""
    data = whole
    for _ in range(draw(st.integers(1, 4))):
        start, stop = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        how = draw(st.sampled_from(("cut", "replace", "repeat", "insert", "flip")))
        piece = draw(st.one_of(st.sampled_from(BINARY + TEXTUAL), st.binary(max_size=8)))
        if how == "cut":
            data = data[:start] + data[min(stop, start + 8) :] if draw(st.booleans()) else data[:stop]
        elif how == "replace":
            data = data[:start] + piece + data[start + len(piece) :]
        elif how == "repeat":
            data = data[:stop] + data[start:stop] + data[stop:]
        elif how == "insert":
            data = data[:start] + piece + data[start:]
        elif data:
            at = min(start, len(data) - 1)
            data = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    return data


def read(path, format):
    """Return the trace or profile, or the line that refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TraceWarning)
        try:
            return read_trace(path, format, max_bytes=ALLOWED)
        except TraceError as error:
            return str(error)


def is_answer(found, path):
    if isinstance(found, str):
        return str(path) in found and "\n" not in found and len(found) < 1000
    return isinstance(found, RoutingTrace | UsageProfile)


@pytest.mark.parametrize("format", WHOLE)
def test_the_undamaged_file_is_recognised_and_read(format, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(WHOLE[format])
    assert read(path, None).provenance["format"] == format
    assert read(path, None) == read(path, format)


@pytest.mark.parametrize("format", WHOLE)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_line(format, tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data.draw(damage(WHOLE[format])))
    tracemalloc.start()
    try:
        found = read(path, format)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert is_answer(found, path), found
    assert peak < ALLOWED + PARSERS


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), *map(damage, WHOLE.values())))
def test_whatever_is_recognised_is_read_or_refused_in_one_line(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    found = read(path, None)
    assert is_answer(found, path), found
