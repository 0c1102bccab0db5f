"""transformers' progress bars are off inside, and afterwards as they were."""

import pytest
from transformers.utils import logging as hf_logging

from stickymoe.model.quiet import without_progress_bars


@pytest.mark.parametrize("before", [True, False])
def test_progress_bars_are_off_inside_and_afterwards_as_they_were(before):
    (hf_logging.enable_progress_bar if before else hf_logging.disable_progress_bar)()
    try:
        with without_progress_bars():
            assert not hf_logging.is_progress_bar_enabled()
        assert hf_logging.is_progress_bar_enabled() is before
        with pytest.raises(KeyboardInterrupt), without_progress_bars():
            raise KeyboardInterrupt
        assert hf_logging.is_progress_bar_enabled() is before
    finally:
        hf_logging.enable_progress_bar()
