"""LONGSPEAR route traces: a line of ASCII and u16 records, drafting heads left out."""

import struct

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import DECODE, PREFILL, read_trace

HEADER = (
    "LONGSPEAR_ROUTE_TRACE v1 model=tiny experts=9 top_k=2 layers=3 main_layers=2 mode=full endian=little "
    "record=u16_layer,u16_n_rows,n_rows*top_k*u16_expert\n"
)
RECORDS = [(0, [[8, 1], [2, 3]]), (1, [[4, 5], [6, 7]]), (0, [[1, 2]]), (1, [[3, 4]])]


def record(layer, rows):
    flat = np.asarray(rows, "<u2")
    return struct.pack("<2H", layer, len(rows)) + flat.tobytes()


@pytest.fixture
def written(tmp_path):
    def write(records=RECORDS, header=HEADER, tail=b""):
        path = tmp_path / "route.trace"
        path.write_bytes(header.encode() + b"".join(record(*each) for each in records) + tail)
        return path

    return write


def test_records_become_tokens(written):
    trace = read_trace(written())
    assert trace.expert_ids.tolist() == [[[8, 1], [4, 5]], [[2, 3], [6, 7]], [[1, 2], [3, 4]]]
    assert trace.phases.tolist() == [PREFILL, PREFILL, DECODE]
    assert trace.num_experts == 9
    told = {"format": "longspear", "num_experts_from": "declared", "model": "tiny", "mode": "full"}
    assert trace.provenance.pop("phases_from").startswith("assumed: a forward pass of several tokens is prefill")
    assert trace.provenance == told


def test_drafting_heads_are_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="1 records of layers from 2 on"):
        trace = read_trace(written([*RECORDS[:2], (2, [[0, 1]]), *RECORDS[2:]]))
    assert trace.layer_names == ("0", "1")
    assert trace.num_tokens == 3


@pytest.mark.parametrize(
    ("change", "tail", "rule"),
    [
        (("v1", "v2"), b"", "version v1"),
        (("experts=9 ", ""), b"", "the header's experts must be a whole number from 1 to 65536, got ''"),
        (("top_k=2", "top_k=-2"), b"", "the header's top_k must be"),
        (("top_k=2", "top_k=" + "9" * 400), b"", "the header's top_k must be"),
        (("endian=little", "endian=big"), b"", "the header's endian must be little, got 'big'"),
        (("model=tiny", "model=t\xefny"), b"", "ASCII"),
        (("\n", ""), b"", "no end of it"),
        (("", ""), b"\1", "16-bit"),
        (("", ""), b"\1\0", "must have a header of 2 numbers, found 1"),
        (("", ""), struct.pack("<2H", 0, 65535), "must lie in the file whole"),
        (("", ""), struct.pack("<2H", 0, 0), "at least one token"),
        (("", ""), record(3, [[1, 2]]), "below the header's 3, got 3"),
        (("experts=9", "experts=8"), b"", "below num_experts 8 (declared), got 8"),
        (("main_layers=2", "main_layers=1"), b"", None),
    ],
)
def test_a_lying_or_cut_file_is_refused_in_one_line(written, refused, change, tail, rule):
    header = HEADER.replace(*change) if change[0] else HEADER
    path = written(header=header, tail=tail)
    if rule is None:
        with pytest.warns(TraceWarning, match="are left out"):
            assert read_trace(path).num_layers == 1
        return
    if change == ("\n", ""):
        path.write_bytes(HEADER.strip().encode())
    assert rule in refused(path, "longspear")


def test_a_trace_of_drafting_heads_alone_is_refused(written, refused):
    assert "only those of drafting heads" in refused(written([(2, [[0, 1]])]))
