"""Arrays that grow by rows."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from stickymoe.traces.importers import growing
from stickymoe.traces.importers.growing import GrowingSlots

blocks = st.lists(
    st.sampled_from([np.int16, np.int32]).flatmap(
        lambda kind: npst.arrays(kind, st.tuples(st.integers(1, 5), st.integers(1, 4)))
    ),
    min_size=1,
    max_size=5,
)


@given(blocks=blocks, step=st.sampled_from([1, 16, 2**20]))
def test_what_is_appended_comes_back_as_wide_as_the_widest(blocks, step):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "STEP_BYTES", step)
        slots = GrowingSlots(-7)
        for block in blocks:
            slots.append(block)
    width = slots.width
    expected = [[*row, *[-7] * (width - len(row))] for block in blocks for row in block.tolist()]
    found = slots.taken()
    assert width == max(block.shape[1] for block in blocks)
    assert found.tolist() == expected
    assert found.dtype == np.result_type(*blocks)


def test_few_rows_take_little_memory():
    tracemalloc.start()
    try:
        slots = GrowingSlots(-1)
        for row in range(100):
            slots.append(np.full((1, 2), row, dtype=np.int16))
        assert tracemalloc.get_traced_memory()[1] < 2**14
    finally:
        tracemalloc.stop()
    assert slots.taken().tolist() == [[row, row] for row in range(100)]
