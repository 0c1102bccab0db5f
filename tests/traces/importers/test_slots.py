"""Slots put in a trace's order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stickymoe.traces.importers.slots import by_weight, filled_first

slots = st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 3)), min_size=1, max_size=5)


@given(tokens=slots)
def test_the_heaviest_slot_comes_first_and_empty_ones_last(tokens):
    ids, weights = np.array(tokens).T.reshape(2, 1, 1, -1)
    found_ids, found_weights = by_weight(ids, weights.astype(np.float32))
    expected = sorted(tokens, key=lambda slot: (slot[0] == -1, -slot[1] if slot[0] != -1 else 0))
    assert list(zip(found_ids.ravel().tolist(), found_weights.ravel().tolist(), strict=True)) == expected


@given(tokens=slots)
def test_filled_slots_come_first_and_keep_their_order(tokens):
    ids, other = np.array(tokens).T.reshape(2, 1, 1, -1)
    found_ids, found_other = filled_first(ids, other)
    expected = sorted(tokens, key=lambda slot: slot[0] == -1)
    assert list(zip(found_ids.ravel().tolist(), found_other.ravel().tolist(), strict=True)) == expected
