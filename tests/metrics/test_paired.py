"""Differences of two traces of the same text."""

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe import metrics
from stickymoe.core.errors import SettingError, TraceError
from stickymoe.metrics import Resampling, measure, paired_difference
from stickymoe.traces import RoutingTrace


def sticky(share: float, seed: int = 0) -> RoutingTrace:
    """Tokens repeat their predecessor's expert with a probability that differs from sequence to sequence."""
    rng = default_rng(seed)
    sequences = []
    for hard in np.linspace(0, 0.5, 12):
        stays = rng.random(60) < share * (1 - hard)
        fresh = rng.integers(0, 8, 60)
        sequences.append([[[int(fresh[np.flatnonzero(~stays[: t + 1])[-1:]].sum())]] for t in range(60)])
    return RoutingTrace.from_sequences(sequences, num_experts=8)


SWITCHING = ["switch_rate", "set_switch_rate", "expert_overlap", "overlap_by_use"]
BALANCE = ["utilisation_entropy", "load_variation", "load_busiest"]


@pytest.mark.parametrize("name", [*SWITCHING, *BALANCE])
def test_a_difference_is_that_of_the_two_values(name):
    before, after = sticky(0.3), sticky(0.8)
    found = paired_difference(before, after, name)
    values = [metrics.summarise(trace)[name]["mean"] for trace in (before, after)]
    assert found.mean == pytest.approx(values[1] - values[0])
    assert found.low < found.mean < found.high
    assert found.n == 12


def test_what_a_text_does_to_both_cancels():
    before, after = sticky(0.8), sticky(0.9)
    paired = paired_difference(before, after, "switch_rate")
    one = measure(before, resampling=Resampling(seed=0)).find("switch_rate").value
    assert paired.high - paired.low < one.interval[1] - one.interval[0]
    assert paired.high < 0


def test_a_trace_does_not_differ_from_itself():
    found = paired_difference(sticky(0.5), sticky(0.5), "switch_rate")
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_a_single_short_sequence_has_a_difference_without_interval():
    left, right = (RoutingTrace.from_sequences([[[[0]], [[e]]]], num_experts=2) for e in (0, 1))
    found = paired_difference(left, right, "switch_rate")
    assert (found.mean, found.low, found.high, found.n) == (1.0, None, None, 1)


def test_what_does_not_pair_is_refused():
    trace = sticky(0.5)
    with pytest.raises(SettingError, match="did you mean 'switch_rate'"):
        paired_difference(trace, trace, "switchrate")
    with pytest.raises(TraceError, match="paired traces must be of the same tokens, got 720 tokens"):
        paired_difference(trace, trace.head(100), "switch_rate")
