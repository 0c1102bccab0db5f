"""`UsageProfile`: what it checks, and where it is refused for want of order."""

import numpy as np
import pytest

from stickymoe.core.errors import TraceError
from stickymoe.traces import RoutingTrace, UsageProfile
from stickymoe.traces.profile import require_ordered


def test_a_profile_keeps_counts_and_names():
    profile = UsageProfile(np.array([[1, 0, 4], [2, 2, 1]], dtype=np.uint16), ("3", "5"))
    assert (profile.num_layers, profile.num_experts, profile.names) == (2, 3, ("3", "5"))
    assert profile.counts.dtype == np.int64
    assert not profile.counts.flags.writeable
    assert UsageProfile([[1]]).names == ("0",)


def test_profiles_are_equal_in_counts_names_and_provenance():
    profile = UsageProfile([[1, 2]], ("a",), {"format": "eplb"})
    assert profile == UsageProfile([[1, 2]], ("a",), {"format": "eplb"})
    assert profile != UsageProfile([[1, 3]], ("a",), {"format": "eplb"})
    assert profile != UsageProfile([[1, 2]], ("b",), {"format": "eplb"})
    assert profile != UsageProfile([[1, 2]], ("a",))
    assert profile != "a profile"


@pytest.mark.parametrize(
    ("counts", "names", "rule"),
    [
        ([1, 2], None, "shaped"),
        (np.zeros((0, 2), dtype=int), None, "at least one of each"),
        ([[1, -1]], None, "got -1"),
        (np.array([[2**63]], dtype=np.uint64), None, "2**63 - 1"),
        ([[0, 0]], None, "only zeros"),
        ([[1.5]], None, "whole numbers"),
        ([[1]], ("a", "b"), "1 words"),
        ([[1], [1]], ("a", "a"), "'a' twice"),
    ],
)
def test_a_broken_profile_is_refused(counts, names, rule):
    with pytest.raises(TraceError) as caught:
        UsageProfile(counts, names)
    assert rule in str(caught.value)


def test_a_trace_passes_where_order_is_needed_and_a_profile_is_refused_with_the_reason():
    trace = RoutingTrace.from_sequences([[[[0]], [[1]]]], num_experts=2)
    assert require_ordered(trace, "a replay") is trace
    words = "a replay needs to know which expert came after which, and imatrix holds only counts"
    with pytest.raises(TraceError, match=words):
        require_ordered(UsageProfile([[1, 2]], provenance={"format": "imatrix"}), "a replay")
