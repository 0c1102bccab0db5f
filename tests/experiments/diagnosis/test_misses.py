"""The three parts of the misses, the verdict, and the gap captured."""

import numpy as np
import pytest

from stickymoe.cache import CacheReport
from stickymoe.experiments.diagnosis.misses import MissShares, gap_captured, miss_shares, verdict_of


def report(hits, misses, compulsory):
    counts = (np.array([each], dtype=np.int64) for each in (hits, misses, compulsory))
    return CacheReport(*counts, {})


def test_the_parts_of_the_misses_and_the_hits_add_up_to_all_lookups():
    shares = miss_shares(report(50, 50, 10), report(70, 30, 10))
    assert (shares.first_use, shares.working_set, shares.policy) == (0.1, 0.2, 0.2)
    assert shares.misses + 0.5 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("shares", "name", "words"),
    [
        (MissShares(0.01, 0.05, 0.2), "policy", "would avoid 77 % of LRU's misses (working set 19 %, first uses 4 %)"),
        (MissShares(0.01, 0.2, 0.05), "working set", "77 % of LRU's misses stay"),
        (MissShares(0.2, 0.05, 0.01), "first uses", "77 % of LRU's misses are first uses"),
        (MissShares(0.1, 0.1, 0.05), "mixed", "first uses 40 %"),
        (MissShares(0.1, 0.0, 0.1), "mixed", "policy 50 %"),
        (MissShares(0.01, 0.005, 0.004), "fits", "LRU misses 2 %"),
        (MissShares(0.0, 0.0, 0.0), "fits", "LRU misses 0 %"),
    ],
)
def test_the_verdict_names_the_part_that_is_more_than_half(shares, name, words):
    verdict = verdict_of(shares, 8, "a layer")
    assert verdict.name == name
    assert words in verdict.sentence


def test_the_gap_captured_is_0_for_lru_and_1_for_belady():
    assert gap_captured(0.5, 0.5, 0.7) == 0
    assert gap_captured(0.7, 0.5, 0.7) == pytest.approx(1)
    assert gap_captured(0.4, 0.5, 0.7) == pytest.approx(-0.5)


def test_without_a_gap_there_is_nothing_to_capture():
    assert gap_captured(0.5, 0.5, 0.502) is None
