"""Forward passes over batches of requests that nobody names, told apart and laid out as sequences."""

from __future__ import annotations

import heapq
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from stickymoe.core.errors import TraceError, TraceWarning
from stickymoe.traces.checks import DECODE, PREFILL, UNASSIGNED
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.raw_ids import layer_names, routed_layers
from stickymoe.traces.importers.slots import filled_first
from stickymoe.traces.trace import RoutingTrace


@dataclass(frozen=True)
class Pass:
    """One forward pass.

    Args:
        name: What it is, for errors.
        expert_ids: (tokens, layers, top_k), -1 where empty.
        positions: Position of each token in its request.
        token_ids: Vocabulary ids.
        lengths: Tokens of each request, in the order of the batch.
        decode: Whether all requests decode; None where those may that have one token.
    """

    name: str
    expert_ids: np.ndarray
    positions: np.ndarray
    token_ids: np.ndarray
    lengths: list[int]
    decode: bool | None


def trace_of_passes(passes: Iterable[Pass], num_experts: int, options: ReadOptions) -> RoutingTrace:
    """Make a sequence of each request, and an event of each pass.

    Args:
        passes: In order.
        num_experts: What the file says.
        options: What the user says.

    Raises:
        TraceError: There is no token, or positions inside a request have gaps.
    """
    passes, requests = list(passes), _Requests()
    if not passes:
        raise TraceError("records must hold at least one token, found none")
    sequences, phases = zip(*[requests.assign(number, each) for number, each in enumerate(passes)], strict=True)
    if requests.doubtful:
        warnings.warn(
            f"in {requests.doubtful} of {len(passes)} passes requests of equal length cannot be told apart: "
            "their tokens may have changed places",
            TraceWarning,
            stacklevel=2,
        )
    (ids,) = filled_first(np.concatenate([each.expert_ids for each in passes]))
    layers = routed_layers(ids)
    top_k = int((ids != UNASSIGNED).sum(axis=2).max())
    experts, told = options.experts(num_experts, int(ids.max()))
    sequence_ids = np.concatenate(sequences)
    order = np.argsort(sequence_ids, kind="stable")
    return RoutingTrace(
        ids[order][:, layers, :top_k],
        sequence_ids[order],
        experts,
        token_ids=np.concatenate([each.token_ids for each in passes])[order],
        positions=np.concatenate([each.positions for each in passes])[order],
        phases=np.concatenate(phases)[order],
        event_ids=np.repeat(np.arange(len(passes)), [len(each.positions) for each in passes])[order],
        layer_names=layer_names(layers, ids.shape[1]),
        provenance={"num_experts_from": told},
    )


@dataclass
class _Requests:
    """The requests seen so far, by the position that each goes on at.

    An engine keeps a running batch in order and takes on new requests at its end, and a decode pass serves all that
    run. So of those that wait for a position the earliest goes on, among those served since the decode pass before;
    one passed over there is done, and goes on only if no other can.
    """

    running: defaultdict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    done: defaultdict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    last_decode: int = -1
    doubtful: int = 0

    def assign(self, number: int, batch: Pass) -> tuple[np.ndarray, np.ndarray]:
        """Return the request and the phase of each token of pass `number`."""
        lengths = [length for length in batch.lengths if length]
        starts = np.cumsum([0, *lengths])[:-1]
        first = batch.positions[starts]
        inside = np.arange(len(batch.positions)) - np.repeat(starts, lengths)
        if (gaps := np.flatnonzero(np.repeat(first, lengths) + inside != batch.positions)).size:
            raise TraceError(f"{batch.name} must have positions that follow each other, got a gap at token {gaps[0]}")
        chosen, phases, left = list[int](), list[int](), False
        for position, length in zip(first.tolist(), lengths, strict=True):
            request = self._take(position) if position else None
            decoded = request is not None and length == 1 if batch.decode is None else batch.decode
            if request is None:
                request, self.count = self.count, self.count + 1
            chosen.append(request)
            phases.append(DECODE if decoded else PREFILL)
        if batch.decode is not False:
            left = any(self._settle(position) for position in set(first.tolist()))
            self.last_decode = number
        self.doubtful += left
        for position, length, request in zip(first.tolist(), lengths, chosen, strict=True):
            heapq.heappush(self.running[position + length], (request, number))
        return np.repeat(chosen, lengths), np.repeat(phases, lengths)

    def _settle(self, position: int) -> bool:
        """Set aside those that were passed over; return whether one that runs still waits at `position`."""
        running = self.running[position]
        while running and running[0][1] < self.last_decode:
            request, last = heapq.heappop(running)
            heapq.heappush(self.done[position], (-last, request))
        return bool(running)

    def _take(self, position: int) -> int | None:
        if self._settle(position):
            return heapq.heappop(self.running[position])[0]
        return heapq.heappop(self.done[position])[1] if self.done[position] else None
