"""Values and intervals, beside traces put together from the sequences that were drawn."""

import numpy as np
import pytest
from numpy.random import default_rng

from stickymoe.metrics import Resampling, switch_rate, utilisation_entropy
from stickymoe.metrics.segments import best_threshold, srp_figures
from stickymoe.metrics.switching import SWITCH_RATE, pairs
from stickymoe.metrics.tally import evaluate
from stickymoe.metrics.units import units_of
from stickymoe.metrics.utilisation import entropy_figure, tokens_per_expert
from stickymoe.metrics.windows import windows
from stickymoe.traces import RoutingTrace

RESAMPLING = Resampling(resamples=30, seed=5)
SEQUENCES = [
    np.argsort(default_rng(number).random((tokens, 2, 5)), axis=-1)[..., :2]
    for number, tokens in enumerate((9, 4, 12, 7))
]
TRACE = RoutingTrace.from_sequences(SEQUENCES, num_experts=5)


def drawn_traces() -> list[RoutingTrace]:
    draws = RESAMPLING.draws(len(SEQUENCES)).astype(int)
    return [
        RoutingTrace.from_sequences(
            [sequence for sequence, times in zip(SEQUENCES, row, strict=True) for _ in range(times)], num_experts=5
        )
        for row in draws
    ]


@pytest.mark.parametrize(
    ("tally", "figure", "measure"),
    [(pairs(1), SWITCH_RATE, switch_rate), (tokens_per_expert, entropy_figure(5), utilisation_entropy)],
    ids=["switch rate", "entropy"],
)
def test_an_interval_is_that_of_the_measure_on_resampled_sequences(tally, figure, measure):
    value = evaluate(TRACE, tally, [figure], units_of(TRACE), RESAMPLING)[figure.name]
    again = np.array([measure(trace) for trace in drawn_traces()])
    assert value.mean == pytest.approx(measure(TRACE).mean())
    half = RESAMPLING.half_width(again.mean(axis=1).std(), 4)
    expected = max(0.0, value.mean - half), min(figure.high, value.mean + half)
    assert value.interval == pytest.approx(expected)
    for layer in range(2):
        half = RESAMPLING.half_width(again[:, layer].std(), 4)
        assert value.per_layer[layer] == pytest.approx(measure(TRACE)[layer])
        found = value.per_layer_interval[layer]
        assert found == pytest.approx(
            (max(0.0, value.per_layer[layer] - half), min(figure.high, value.per_layer[layer] + half))
        )


def test_a_pooled_figure_takes_the_sums_of_all_layers():
    figure, _ = srp_figures(3)
    units = units_of(TRACE)
    value = evaluate(TRACE, windows(3), [figure], units, RESAMPLING)[figure.name]
    sums = sum(windows(3)(TRACE, layer, units) for layer in range(2))
    assert value.mean == pytest.approx(best_threshold(sums.sum(axis=0, keepdims=True))[0][0])
    again = best_threshold(RESAMPLING.draws(4) @ sums)[0]
    half = RESAMPLING.half_width(np.std(again), 4)
    assert value.interval == pytest.approx((value.mean - half, min(1.0, value.mean + half)))


def test_a_layer_without_value_is_none_and_left_out_of_the_mean():
    ids = np.array([[[0], [0]], [[1], [-1]], [[0], [1]]])
    trace = RoutingTrace(ids, np.zeros(3, dtype=int), num_experts=2)
    value = evaluate(trace, pairs(1), [SWITCH_RATE], units_of(trace), RESAMPLING)["switch_rate"]
    assert value.per_layer == (1.0, None)
    assert (value.mean, value.interval, value.per_layer_interval) == (1.0, None, (None, None))


@pytest.mark.parametrize(("pairs_in", "interval"), [(1, None), (2, (1.0, 1.0))])
def test_what_only_one_sequence_tells_has_no_interval(pairs_in, interval):
    # Zero spread over resamples of a single observation is ignorance, of several it is agreement.
    sequences = [[[[0]], [[1]]]] * pairs_in + [[[[0]]]] * 5
    trace = RoutingTrace.from_sequences(sequences, num_experts=2)
    value = evaluate(trace, pairs(1), [SWITCH_RATE], units_of(trace), RESAMPLING)["switch_rate"]
    assert (value.mean, value.interval, value.per_layer_interval) == (1.0, interval, (interval,))


def test_blocks_of_one_sequence_give_no_interval_to_what_spans_more_than_a_block():
    ids = np.argsort(default_rng(0).random((100, 1, 5)), axis=-1)[..., :2]
    trace = RoutingTrace.from_sequences([ids], num_experts=5)
    units = units_of(trace)
    assert units.block == 33
    for window, known in ((33, True), (34, False)):
        figure, _ = srp_figures(window)
        value = evaluate(trace, windows(window), [figure], units, RESAMPLING)[figure.name]
        assert (value.interval is not None, value.per_layer_interval[0] is not None) == (known, known)
