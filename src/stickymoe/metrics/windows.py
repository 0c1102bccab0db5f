"""How many experts a run of tokens needs: the working set."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from stickymoe.core.settings import require_at_least
from stickymoe.metrics.rows import layer_ids, run_starts
from stickymoe.metrics.tally import Figure, Tally, by_layer, ratio
from stickymoe.metrics.units import Units
from stickymoe.metrics.window_kernel import largest_working_set, window_uses
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


class WorkingSet(NamedTuple):
    """Distinct experts in windows of consecutive tokens, one number a layer each."""

    mean: Float[np.ndarray, " layers"]
    largest: Int[np.ndarray, " layers"]


def working_set(trace: RoutingTrace, window: int) -> WorkingSet:
    """Distinct experts that a layer uses in `window` consecutive tokens, over all such windows (stride 1).

    A cache that holds a layer's working set of W tokens misses nothing that was used in the last W tokens. Windows do
    not cross the border of a sequence or document; runs shorter than `window` have none. A window of which a layer
    served no token does not count.

    Args:
        trace: The routing.
        window: W tokens, >= 1.

    Returns:
        Mean and maximum a layer, in [1, min(W * k, num_experts)]; k where the tokens of a window share their experts.

    Raises:
        SettingError: `window` is below 1.
        TraceError: No run of neighbouring tokens is that long, or some layer served no token of such a run.
    """
    figure = working_set_figure(trace.num_experts, window)
    mean = by_layer(trace, windows(window), figure)
    starts = run_starts(trace)
    largest = [
        largest_working_set(ids, starts, window, table)
        for ids, table in (layer_ids(trace, layer) for layer in range(trace.num_layers))
    ]
    return WorkingSet(mean, np.array(largest, dtype=np.int64))


def chance_working_set(trace: RoutingTrace, window: int) -> float:
    """Working set to expect of routing at random: num_experts * (1 - (1 - k / num_experts) ** window).

    k is the mean number of filled slots of a token, in the layers that served any.
    """
    assigned = trace.expert_ids != UNASSIGNED
    layers = np.count_nonzero(assigned.any(axis=(0, 2)))
    filled = np.count_nonzero(assigned) / (trace.num_tokens * layers)
    return float(trace.num_experts * (1 - (1 - filled / trace.num_experts) ** window))


def windows(window: int) -> Tally:
    """Count windows and how often each expert is used in them; see `window_uses`."""
    require_at_least("window", window, 1)

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        ids, table = layer_ids(trace, layer)
        # No run holds more tokens than the trace: a longer window has as few columns as it has windows.
        if window > trace.num_tokens:
            return np.zeros((units.count, 2))
        return window_uses(ids, run_starts(trace), units.of_row, units.count, window, table)

    return tally


def working_set_figure(num_experts: int, window: int) -> Figure:
    """Mean of the distinct experts a window."""

    def mean(sums: np.ndarray) -> np.ndarray:
        return ratio(sums[..., 1:].sum(axis=-1), sums[..., 0])

    return Figure("working_set", mean, f"a run of {window} neighbouring tokens", high=float(num_experts), reach=window)
