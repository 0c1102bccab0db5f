"""MoE-Infinity's counts by sequence."""

import numpy as np
import pytest

from stickymoe.core.errors import TraceWarning
from stickymoe.traces import UsageProfile, read_trace

COUNTS = np.array([[[9.0, 3, 0], [2, 1, 4]], [[0, 1, 1], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]]])


@pytest.fixture
def written(tmp_path):
    def write(counts):
        np.save(tmp_path / "trace.npy", counts)
        return tmp_path / "trace.npy"

    return write


def test_sequences_add_up_to_a_profile(written):
    profile = read_trace(written(COUNTS))
    assert isinstance(profile, UsageProfile)
    assert profile.counts.tolist() == [[9, 4, 1], [3, 1, 4]]
    assert profile.provenance == {"format": "moe-infinity", "num_experts_from": "declared", "sequences": 2}


def test_whole_numbers_are_read_where_the_format_is_named(written):
    path = written(COUNTS.astype(np.uint8))
    assert read_trace(path, "moe-infinity").counts.tolist() == [[9, 4, 1], [3, 1, 4]]


def test_layers_without_experts_are_left_out_with_a_warning(written):
    with pytest.warns(TraceWarning, match="1 layers without any use"):
        profile = read_trace(written(np.insert(COUNTS, 1, 0, axis=1)))
    assert profile.layer_names == ("0", "2")
    assert profile.counts.tolist() == [[9, 4, 1], [3, 1, 4]]


def test_shares_are_scaled_and_said_to_be_shares(written):
    profile = read_trace(written(COUNTS / 4))
    assert profile.counts.tolist()[0] == [10**9, round(10**9 * 4 / 9), round(10**9 / 9)]
    assert "shares" in profile.provenance["counts_are"]


@pytest.mark.parametrize(
    ("counts", "rule"),
    [
        (COUNTS[0], "shaped (sequences, layers, experts)"),
        (COUNTS[:, :, :0], "at least one of each"),
        (COUNTS * 0, "at least one use"),
        (np.where(COUNTS == 4, np.nan, COUNTS), "sequence 0, layer 1, expert 2 must have a count from 0"),
        (np.where(COUNTS == 9, -1, COUNTS), "sequence 0, layer 0, expert 0"),
        (np.where(COUNTS == 9, np.inf, COUNTS), "got inf"),
        (np.where(COUNTS == 9, 2**63, COUNTS).astype(np.uint64), "below 2**62, got 9223372036854775808"),
        (COUNTS.astype("U4"), "must be numbers"),
        (COUNTS.astype(object), "Python objects"),
    ],
)
def test_what_is_no_table_of_counts_is_refused_in_one_line(written, refused, counts, rule):
    assert rule in refused(written(counts), "moe-infinity")


def test_the_users_number_of_experts_must_be_the_files(written, refused):
    assert "num_experts 4 against 3" in refused(written(COUNTS), num_experts=4)
