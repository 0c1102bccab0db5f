"""Replay of one trace through its pools: what goes into the compiled loop and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stickymoe.cache.capacity import Capacity, Layout
from stickymoe.cache.order import Order
from stickymoe.cache.policies import belady_kernel
from stickymoe.cache.profile import Profile
from stickymoe.cache.registry import PoolFacts, checked_options
from stickymoe.cache.replay_kernel import (
    ALWAYS,
    BYPASS,
    COLD,
    NEVER,
    WHOLE,
    Requests,
    new_pool,
    pin,
    replay_in_turn,
    replay_together,
)
from stickymoe.cache.settings import CacheSettings
from stickymoe.traces import RoutingTrace

ADMITS = {"always": ALWAYS, "whole": WHOLE, "bypass": BYPASS, "never": NEVER}
NO_WEIGHTS = np.zeros((0, 0, 0), dtype=np.float32)
# Lookups made ready for the compiled loop at a time.
CHUNK = 2**22


@dataclass(frozen=True)
class Piece:
    """Rows of a trace in the order they are asked for: ids and weights by reference, what goes with a row copied.

    `room` is memory that one pool after the other is laid out in.
    """

    ids: np.ndarray
    weights: np.ndarray | None
    phases: np.ndarray
    order: Order
    room: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, trace: RoutingTrace, order: Order, settings: CacheSettings, weighted: bool) -> Piece:
        """Take what the settings look at."""
        slots = 1 if settings.accesses == "top1" else trace.top_k
        weights = trace.expert_weights[:, :, :slots] if weighted and trace.expert_weights is not None else None
        phases = trace.phases if trace.phases is not None else np.zeros(trace.num_tokens, dtype=np.uint8)
        if order.rows is not None:
            phases = phases[order.rows]
        return cls(trace.expert_ids[:, :, :slots], weights, phases.astype(np.uint8, copy=False), order)

    def requests(self, layers: slice, first: int, last: int) -> Requests:
        """Return the groups `first` to `last` - 1 at some layers, laid out for the compiled loop until the next."""
        groups = self.order.groups[first : last + 1]
        start, stop = int(groups[0]), int(groups[-1])
        rows = slice(start, stop) if self.order.rows is None else self.order.rows[start:stop]
        ids = self.ids[rows, layers]
        if not (ids.flags.c_contiguous and ids.flags.writeable):  # the compiled loop knows one kind of array
            ids = self._laid_out("ids", ids, ids.dtype)
        weights = NO_WEIGHTS
        if self.weights is not None:
            weights = self._laid_out("weights", self.weights[rows, layers], np.float32)
        heads = np.ascontiguousarray(self.order.heads[first:last])
        phases = np.ascontiguousarray(self.phases[start:stop])
        phases.flags.writeable = False  # a trace's own are not; the other kind would be compiled anew
        return Requests(ids, weights, phases, groups - start, heads)

    def _laid_out(self, name: str, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        found = self.scratch(name, values.size, dtype).reshape(values.shape)
        np.copyto(found, values)
        return found

    def scratch(self, name: str, size: int, dtype: DTypeLike) -> np.ndarray:
        """Return room for `size` values, the same each time."""
        if name not in self.room or self.room[name].size < size or self.room[name].dtype != dtype:
            self.room[name] = np.empty(size, dtype=dtype)
        return self.room[name][:size]

    def chunks(self, layers: slice, first: int, stop: int) -> Iterator[Requests]:
        """Yield the groups `first` to `stop` - 1, some millions of lookups at a time."""
        width = self.ids[:0, layers].shape[1] * self.ids.shape[2]
        groups = self.order.groups
        while first < stop:
            limit = groups[first] + max(1, CHUNK // width)
            last = min(stop, max(first + 1, int(np.searchsorted(groups, limit, side="right")) - 1))
            yield self.requests(layers, first, last)
            first = last


class PoolReplay:
    """One pool and its policy, fed piece by piece.

    Args:
        settings: How to count.
        capacity: The budgets of all pools.
        layout: The model's experts.
        number: Which pool: the layer's number, or 0 where all layers share one.
        profile: Who stays for good, for a static cache.
        uses: How many uses may come, where that is known; a bound lets some policies count in half the room.
    """

    def __init__(
        self,
        settings: CacheSettings,
        capacity: Capacity,
        layout: Layout,
        number: int,
        profile: Profile | None = None,
        uses: int | None = None,
    ) -> None:
        """Start cold."""
        self.settings = settings
        self.layers = slice(0, layout.layers) if settings.pooled else slice(number, number + 1)
        self.experts = layout.experts
        count = layout.layers if settings.pooled else 1
        sizes = np.repeat(capacity.sizes[self.layers], layout.experts)
        self._pool = new_pool(sizes, capacity.budgets[number])
        self._facts = PoolFacts(
            blocks=sizes.size,
            layers=count,
            slots=min(capacity.slots[number] if capacity.slots else 0, sizes.size),
            options=checked_options(settings.policy, settings.options, sizes.size),
            uses=uses,
        )
        self.profile = profile
        if profile is not None:
            self._facts = PoolFacts(sizes.size, count, chosen=profile.chosen[self.layers].reshape(-1))
            if not profile.learning_tokens:
                self._pool.preloaded[:] = self._facts.chosen
        self._state = settings.kind.new(self._facts)
        self.counts = np.zeros((4, count, 2), dtype=np.int64)

    def run(self, requests: Requests) -> None:
        """Replay requests that follow the last ones."""
        admission = ADMITS[self.settings.admits]
        if self.settings.sequential:
            replay_in_turn(self._state, self._pool, requests, self.experts, admission, self.counts)
        else:
            unique = self.settings.count == "unique"
            replay_together(self._state, self._pool, requests, self.experts, unique, admission, self.counts)

    def drive(self, loop: Callable[..., None], requests: Requests, *rest: Any) -> None:
        """Replay requests that follow the last ones in a compiled loop of another kind."""
        loop(self._state, self._pool, requests, self.experts, *rest)

    def foresee(self, next_use: np.ndarray) -> None:
        """Know the uses to come, all of them."""
        self._state = self.settings.kind.new(replace(self._facts, next_use=next_use))

    def next_uses(self, requests: Requests, found: np.ndarray) -> np.ndarray:
        """Return the future as `foresee` takes it, in `found`: the same for pools of every capacity."""
        cold = requests.heads == COLD
        last = np.empty(self._facts.blocks, dtype=np.int64)
        sequential, unique = self.settings.sequential, self.settings.count == "unique"
        return belady_kernel.next_uses(
            requests.ids, self.experts, requests.groups, cold, sequential, unique, last, found
        )

    def pin(self) -> None:
        """Let the chosen ones in, now that they are known."""
        if self._facts.chosen is not None:
            pin(self._pool, self._facts.chosen)


def feed(pools: Sequence[PoolReplay], piece: Piece) -> None:
    """Replay a piece in pools that serve the same layers under the same settings, but for their capacities."""
    first, groups = pools[0], piece.order.groups.size - 1
    if "future" in first.settings.kind.needs:
        requests = piece.requests(first.layers, 0, groups)
        # `next_uses` gives numbers below twice the uses
        whole = np.int32 if requests.ids.size < 2**30 else np.int64
        next_use = first.next_uses(requests, piece.scratch("next_use", requests.ids.size, whole))
        for pool in pools:
            pool.foresee(next_use)
            pool.run(requests)
        return
    known = 0 if first.profile is None else first.profile.known_from(piece.order)
    for requests in piece.chunks(first.layers, 0, known):
        for pool in pools:
            pool.run(requests)
    if known:
        for pool in pools:
            pool.pin()
    for requests in piece.chunks(first.layers, known, groups):
        for pool in pools:
            pool.run(requests)
