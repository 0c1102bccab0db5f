"""Units: what may be resampled."""

import numpy as np
import pytest

from stickymoe.metrics.rows import run_starts, sequence_firsts
from stickymoe.metrics.units import MOST_UNITS, units_of, whole
from stickymoe.traces import RoutingTrace


def lengths(*tokens: int) -> RoutingTrace:
    return RoutingTrace.from_sequences([np.zeros((each, 1, 1), dtype=int) for each in tokens], num_experts=2)


def test_sequences_are_units():
    units = units_of(lengths(2, 1, 3))
    assert (units.count, units.kind) == (3, "sequences")
    assert units.of_row.tolist() == [0, 0, 1, 2, 2, 2]


def test_very_many_sequences_are_grouped_and_each_stays_whole():
    trace = lengths(*[1, 2] * MOST_UNITS)
    units = units_of(trace)
    assert (units.count, units.kind) == (MOST_UNITS, "groups of 2 sequences")
    assert np.array_equal(np.unique(units.of_row, return_counts=True)[1], np.full(MOST_UNITS, 3))


def test_one_sequence_is_cut_into_contiguous_blocks_and_says_so():
    units = units_of(lengths(100))
    assert (units.count, units.kind) == (3, "contiguous blocks of 33.33 tokens of the only sequence")
    assert np.unique(units.of_row, return_counts=True)[1].tolist() == [34, 33, 33]
    assert (np.diff(units.of_row) >= 0).all()
    assert units_of(lengths(5000)).count == 20


@pytest.mark.parametrize("tokens", [1, 63])
def test_a_short_sequence_is_one_unit(tokens):
    trace = lengths(tokens)
    assert units_of(trace).count == whole(trace).count == 1


def test_runs_end_at_sequences_documents_and_gaps():
    trace = RoutingTrace(
        np.zeros((7, 1, 1), dtype=int),
        np.array([0, 0, 0, 0, 0, 1, 1]),
        num_experts=2,
        document_ids=np.array([0, 0, 1, 1, 1, 1, 1]),
        positions=np.array([0, 1, 2, 3, 5, 6, 7]),
    )
    assert run_starts(trace).tolist() == [0, 0, 2, 2, 4, 5, 5]
    assert sequence_firsts(trace).tolist() == [0, 0, 0, 0, 0, 5, 5]
