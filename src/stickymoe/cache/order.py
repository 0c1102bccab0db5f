"""The order in which a trace asks for its experts: which rows are one event, and where caches start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stickymoe.cache.replay_kernel import COLD, SAME, SEQUENCE
from stickymoe.cache.settings import CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.traces import PREFILL, RoutingTrace


@dataclass(frozen=True)
class Order:
    """Groups of rows, each one event at every layer.

    Args:
        rows: The rows in the order they are asked for; None where that is the trace's own.
        groups: Bounds of the groups in `rows`; one more than there are groups.
        heads: What happens before each group: nothing, a new sequence, or a cold start.
    """

    rows: np.ndarray | None
    groups: np.ndarray
    heads: np.ndarray

    @property
    def largest(self) -> int:
        """Rows of the largest group."""
        return int(np.diff(self.groups).max())


def order_of(trace: RoutingTrace, settings: CacheSettings) -> Order:
    """Return the order of a whole trace.

    Raises:
        SettingError: The trace does not know the passes that the settings ask for.
    """
    starts = trace.sequence_starts()
    if settings.prefill == "pass":
        begins = pass_begins(trace)
        begins[starts[:-1]] = True
        first_rows = np.flatnonzero(begins)
    else:
        first_rows = np.arange(trace.num_tokens)
    groups = np.append(first_rows, trace.num_tokens).astype(np.int64)
    heads = np.full(first_rows.size, SAME, dtype=np.uint8)
    heads[np.searchsorted(first_rows, starts[:-1])] = COLD if settings.reset == "sequence" else SEQUENCE
    heads[0] = COLD
    order = Order(None, groups, heads)
    return order if settings.batch == 1 else _in_batches(order, np.searchsorted(first_rows, starts), settings)


def pass_begins(trace: RoutingTrace) -> np.ndarray:
    """Return for each row whether a forward pass begins with it, inside its sequence.

    Passes are the trace's events; where it knows phases alone, a run of prefill rows is one, each decode row another.
    """
    begins = np.ones(trace.num_tokens, dtype=bool)
    if trace.event_ids is not None:
        begins[1:] = trace.event_ids[1:] != trace.event_ids[:-1]
    elif trace.phases is not None:
        prefill = trace.phases == PREFILL
        begins[1:] = ~(prefill[1:] & prefill[:-1])
    else:
        way_out = 'take prefill="token"'
        raise SettingError.broken("cache.prefill", "token for a trace without phases or event_ids", "pass", way_out)
    return begins


def _in_batches(order: Order, bounds: np.ndarray, settings: CacheSettings) -> Order:
    """Unite the n-th groups of `batch` sequences at a time; `bounds` are the sequences' first groups."""
    lengths = np.diff(bounds)
    sequence = np.repeat(np.arange(lengths.size), lengths)
    step = np.arange(sequence.size) - bounds[sequence]
    turn = np.lexsort((sequence, step, sequence // settings.batch))
    sizes = np.diff(order.groups)[turn]
    ends = np.cumsum(sizes)
    rows = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes) + np.repeat(order.groups[turn], sizes)
    place = np.stack([sequence[turn] // settings.batch, step[turn]])
    new = np.append(True, (place[:, 1:] != place[:, :-1]).any(axis=0))
    groups = np.append((ends - sizes)[new], ends[-1])
    heads = np.full(groups.size - 1, SAME, dtype=np.uint8)
    heads[place[1, new] == 0] = COLD if settings.reset == "sequence" else SEQUENCE
    heads[0] = COLD
    return Order(rows, groups, heads)
