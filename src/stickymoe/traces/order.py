"""What must hold from one piece of a trace to the next, where no one sees the whole."""

from __future__ import annotations

import numpy as np

from stickymoe.core.errors import TraceError


class PieceOrder:
    """Checks, piece by piece, that sequences stay together and that forward passes do not run backwards in one.

    Keeps eight bytes a sequence, whatever the number of tokens.
    """

    def __init__(self) -> None:
        """Start before the first piece."""
        self._finished: list[np.ndarray] = []
        self._last: int | None = None
        self._largest: int | None = None
        self._last_event: int | None = None

    def add(self, sequence_ids: np.ndarray, event_ids: np.ndarray | None) -> None:
        """Note the next piece, which alone is in order.

        Raises:
            TraceError: It continues a sequence that had ended, or its sequence at an earlier forward pass.
        """
        changes = np.flatnonzero(sequence_ids[1:] != sequence_ids[:-1]) + 1
        begun = sequence_ids[np.concatenate([[0], changes])]
        if begun[0] == self._last:
            begun = begun[1:]
            if event_ids is not None and self._last_event is not None and event_ids[0] < self._last_event:
                found = f"{event_ids[0]} after {self._last_event} where a piece goes on with sequence {self._last}"
                raise TraceError(f"trace.event_ids must not fall inside a sequence, got {found}")
        if begun.size:
            rising = (self._largest is None or begun[0] > self._largest) and bool((begun[1:] > begun[:-1]).all())
            if not rising and self._finished:
                self._refuse_known(begun)
            self._finished.append(begun.copy())
            self._largest = int(begun.max()) if self._largest is None else max(self._largest, int(begun.max()))
        self._last = int(sequence_ids[-1])
        self._last_event = None if event_ids is None else int(event_ids[-1])

    def _refuse_known(self, begun: np.ndarray) -> None:
        again = begun[np.isin(begun, np.concatenate(self._finished))].tolist()
        if again:
            rule = "trace.sequence_ids must keep the tokens of a sequence together"
            raise TraceError(f"{rule}, got sequence {again[0]} in several pieces; sort the rows")
