"""How uneven the experts' load is inside each forward pass: what expert parallelism waits for."""

from __future__ import annotations

import numpy as np

from stickymoe.metrics.tally import Figure, Tally, ratio
from stickymoe.metrics.units import MOST_UNITS, Units
from stickymoe.traces import RoutingTrace

DEVICES = 8


def pass_units(trace: RoutingTrace) -> Units:
    """Return the forward passes of a trace as units, up to 256 groups of neighbouring ones."""
    assert trace.event_ids is not None
    numbers, of_row = np.unique(trace.event_ids, return_inverse=True)
    count = min(len(numbers), MOST_UNITS)
    kind = "forward passes" if count == len(numbers) else f"groups of {len(numbers) / count:.3g} forward passes"
    return Units((of_row.reshape(-1) * count // len(numbers)).astype(np.int64), count, kind)


def pass_loads(groups: int) -> Tally:
    """Count, for each unit, the busiest and the mean load of `groups` equal groups of experts, pass by pass.

    Each group stands for a device that holds neighbouring experts; as many groups as experts: a device an expert.
    """

    def tally(trace: RoutingTrace, layer: int, units: Units) -> np.ndarray:
        assert trace.event_ids is not None
        _, event = np.unique(trace.event_ids, return_inverse=True)
        event = event.reshape(-1)
        ids = trace.expert_ids[:, layer].astype(np.int64)
        filled = ids >= 0
        keys = (event[:, None] * groups + ids * groups // trace.num_experts)[filled]
        places, counts = np.unique(keys, return_counts=True)
        of_place = places // groups
        busiest, total = np.zeros(event.max() + 1), np.zeros(event.max() + 1)
        np.maximum.at(busiest, of_place, counts)
        np.add.at(total, of_place, counts)
        unit_of_event = np.zeros(len(busiest), dtype=np.int64)
        unit_of_event[event] = units.of_row
        return np.stack(
            [np.bincount(unit_of_event, part, minlength=units.count) for part in (busiest, total / groups)], axis=1
        )

    return tally


def busiest_of_a_pass(groups: int) -> Figure:
    """Name the figure: work until the busiest group is done, over work spread evenly.

    busiest = sum over passes of max_g load[g]  /  sum over passes of mean_g load[g]

    1: every pass is spread evenly; `groups`: one group does everything. A long pass counts for more than a short one,
    as it does in time.
    """
    return Figure(
        "pass_busiest",
        lambda sums: ratio(sums[..., 0], sums[..., 1]),
        "at least one token",
        high=float(groups),
        low=1.0,
    )
