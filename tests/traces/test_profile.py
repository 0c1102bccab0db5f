"""What a usage profile keeps and refuses."""

import numpy as np
import pytest

from stickymoe.core.errors import TraceError
from stickymoe.traces import UsageProfile


def test_a_profile_is_counts_by_layer_and_expert():
    profile = UsageProfile([[3, 0, 1], [0, 0, 2]], layer_names=["2", "5"], provenance={"model": "tiny"})
    assert (profile.num_layers, profile.num_experts, profile.names) == (2, 3, ("2", "5"))
    assert profile.counts.dtype == np.int64
    assert UsageProfile([[1], [2]]).names == ("0", "1")
    with pytest.raises(ValueError, match="read-only"):
        profile.counts[0, 0] = 1


def test_profiles_differ_where_any_part_differs():
    profile = UsageProfile([[3, 0]])
    assert profile == UsageProfile(np.array([[3, 0]], dtype=np.uint8))
    assert profile != UsageProfile([[3, 1]])
    assert profile != UsageProfile([[3, 0]], layer_names=("1",))
    assert profile != UsageProfile([[3, 0]], provenance={"a": 1})
    assert profile != [[3, 0]]


@pytest.mark.parametrize(
    ("counts", "names", "words"),
    [
        ([1, 2], None, r"shaped \(layers, experts\)"),
        (np.zeros((0, 3), dtype=int), None, "at least one of each"),
        ([[1, -1]], None, "got -1"),
        (np.array([[2**63]], dtype=np.uint64), None, "got 9223372036854775808"),
        ([[0.5]], None, "whole numbers"),
        ([[0, 0]], None, "only zeros"),
        ([[1], [1]], ("a", "a"), "'a' twice"),
        ([[1], [1]], ("a",), "2 words"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line(counts, names, words):
    with pytest.raises(TraceError, match=words) as caught:
        UsageProfile(counts, layer_names=names)
    assert "\n" not in str(caught.value)
