"""EPLB weights as npy, safetensors and JSON: counts as they are, shares scaled and said to be."""

import io
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from stickymoe.traces import read_trace

WEIGHT = [[90, 132, 40], [20, 107, 104]]


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture
def written(tmp_path):
    def write(data):
        path = tmp_path / "weight"
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path

    return write


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array(WEIGHT)),
        npy(np.array(WEIGHT, dtype=np.float32)),
        npy(np.asfortranarray(np.array(WEIGHT, dtype=np.uint16))),
        save({"weight": np.array(WEIGHT, dtype=np.float64), "other": np.zeros(3)}),
        WEIGHT,
        {"logical_count": WEIGHT, "step": 3},
        {str(layer): {str(e): c for e, c in enumerate(row)} for layer, row in enumerate(WEIGHT)},
    ],
)
def test_every_container_reads_the_same(written, data):
    profile = read_trace(written(data))
    assert profile.counts.tolist() == WEIGHT
    assert profile.names == ("0", "1")
    assert profile.provenance == {"format": "eplb", "num_experts_from": "declared"}


def test_shares_are_scaled_and_said_to_be(written):
    profile = read_trace(written(npy(np.array([[0.5, 0.25], [0.125, 0.0]]))))
    assert profile.counts.tolist() == [[10**9, 5 * 10**8], [25 * 10**7, 0]]
    assert "uses cannot be told" in profile.provenance["counts_are"]


def lying_npy(shape):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + b"\0" * 64


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "empty"),
        (npy(np.array(WEIGHT))[:-1], "cut or lies"),
        (lying_npy((10**6, 10**6)), "cut or lies"),
        (npy(np.array([["a"]])), "numbers, at least one of each"),
        (npy(np.zeros((2, 0))), "got shape (2, 0)"),
        (npy(np.zeros(3)), "got shape (3,)"),
        (npy(np.array([[1.0, np.nan]])), "layer 0, expert 1 must have a count >= 0, got nan"),
        (npy(np.array([[1.0, np.inf]])), "got inf"),
        (npy(np.array([[1, -1]])), "got -1"),
        (npy(np.zeros((2, 2))), "only zeros"),
        (save({"other": np.zeros((2, 2))}), "must hold a tensor named one of"),
        (save({"weight": np.ones((2, 2))})[:-1], "safetensors"),
        (struct.pack("<Q", 20) + b"{" + b" " * 40, "safetensors"),
        ([[1, 2], [3]], "layer 1 must have as many experts as layer 0, 2, got 1"),
        ([[1, "2"]], "layer 0 must hold numbers, got '2'"),
        ([[1, True]], "layer 0 must hold numbers, got True"),
        ([[1, 10**30]], "64 bits"),
        ([], "must be a list of one list a layer"),
        ({"0": {"0": 1}, "2": {"0": 1}}, "numbered from 0 on without a gap"),
        ({"0": {"999999": 1}, "1": {"0": 1}}, None),
        ({"0": {"x": 1}}, "must map expert numbers to counts"),
        ({"0": 1}, "must map expert numbers to counts"),
        (b"[[1, NaN]]", "got nan"),
        (b"[[1, 2]", "must be JSON"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_in_one_line(written, refused, data, rule):
    if rule is None:
        assert "max_bytes" in refused(written(data), "eplb", max_bytes=2**20)
    else:
        assert rule in refused(written(data), "eplb")


def test_an_option_that_the_file_contradicts_is_refused(written, refused):
    assert "num_experts 4 against 3" in refused(written(WEIGHT), num_experts=4)
    assert "num_layers 3 against 2" in refused(written(WEIGHT), num_layers=3)
