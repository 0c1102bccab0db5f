"""colibri usage files: text with headers, text without, inkling's binary."""

import struct

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import read_trace

# glm_moe_dsa signs with 3815245270
TEXT = "-1 2 4\n-2 1 3815245270\n0 3 7\n1 0 2\n1 1 9\n2 2 5\n"
TABLE = [[0, 0, 0, 7], [2, 9, 0, 0], [0, 0, 5, 0]]


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / ".coli_usage"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def binary(table, layers=None):
    counts = np.asarray(table, "<u4")
    return (
        b"IKU1" + struct.pack("<2I", counts.shape[0] if layers is None else layers, counts.shape[1]) + counts.tobytes()
    )


def test_headers_tell_sizes_and_engine(written):
    profile = read_trace(written(TEXT))
    assert profile.counts.tolist() == TABLE
    assert profile.layer_names == ("0", "1", "2")
    assert profile.provenance == {"format": "coli-usage", "num_experts_from": "declared", "engine": "glm_moe_dsa"}


def test_an_unknown_engine_is_told_by_its_number(written):
    assert read_trace(written(TEXT.replace("3815245270", "17"))).provenance["engine"] == "unknown (17)"


def test_text_without_headers_guesses_the_number_of_experts_and_says_so(written):
    legacy = TEXT.split("\n", 2)[2]
    profile = read_trace(written(legacy))
    assert profile.counts.tolist() == TABLE
    assert profile.provenance["num_experts_from"] == "largest id + 1"
    assert read_trace(written(legacy), num_experts=6).counts.tolist() == [[*row, 0, 0] for row in TABLE]


def test_layers_that_nobody_used_are_not_there(written):
    assert read_trace(written(TEXT.replace("1 0 2\n1 1 9\n", ""))).layer_names == ("0", "2")


def test_inklings_binary_reads_the_same(written):
    assert read_trace(written(binary(TABLE))).counts.tolist() == TABLE


def test_layers_without_experts_in_the_binary_are_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="1 layers without any use"):
        assert read_trace(written(binary([[0, 0], [3, 4]]))).layer_names == ("1",)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ("", "empty"),
        ("-1 2 4\n", "found only headers"),
        (TEXT + "2 3", "Expected 3 columns, got 2"),
        (TEXT + "2 x 1\n", "invalid value 'x'"),
        (TEXT + "3 0 1\n", "line 7 must have layer from 0 to 2, got 3"),
        (TEXT + "1 4 1\n", "line 7 must have expert from 0 to 3, got 4"),
        (TEXT + "1 -1 1\n", "got -1"),
        (TEXT + "1 2 -1\n", "line 7 must have count from 0 to"),
        (TEXT + "1 2 9e9\n", "invalid value '9e9'"),
        (TEXT + "0 3 7\n", "line 7 must not count an expert that was counted above"),
        (TEXT.replace("-2 1", "-2 2"), "line 2 must be of format version 1, got 2"),
        (TEXT.replace("-1 2 4", "-1 2 0"), "line 1 must declare layers and experts"),
        ("0 999999 1\n1048575 0 1\n", None),
        ("0 0 0\n", "only zeros"),
        (b"IKU1\1\0", "header of 12 bytes"),
        (binary(TABLE)[:-1], "the file is cut or lies"),
        (binary(TABLE, layers=2**32 - 1), "the file is cut or lies"),
        (binary([[0, 0]]), "only zeros"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(written, refused, data, rule):
    if rule is None:
        assert "max_bytes" in refused(written(data), "coli-usage", max_bytes=2**20)
    else:
        assert rule in refused(written(data), "coli-usage")


def test_a_profile_for_another_model_is_refused(written, refused):
    assert "num_experts 8 against 4" in refused(written(TEXT), num_experts=8)
