"""An array of slots that grows by rows without ever standing in memory twice."""

from __future__ import annotations

from typing import Any

import numpy as np

STEP_BYTES = 2**25


class GrowingSlots:
    """Rows of slots, appended block by block; wider rows and types widen all.

    Lists of blocks would have to be copied into one array in the end, and memory that was freed block by block does not
    always go back. A large array is moved by the system's page tables when it grows, not copied.
    """

    def __init__(self, fill: float) -> None:
        """Start without rows; narrower ones are filled up with `fill`."""
        self._fill = fill
        self._array = np.empty((0, 1), dtype=np.int8)
        self._rows = 0

    @property
    def width(self) -> int:
        """Slots of the widest row."""
        return int(self._array.shape[1])

    def append(self, block: np.ndarray) -> None:
        """Add rows behind those there are."""
        width, kind = max(self.width, block.shape[1]), np.result_type(self._array, block)
        if not self._rows:
            self._array = np.empty((0, block.shape[1]), dtype=block.dtype)
        elif (width, kind) != (self.width, self._array.dtype):
            wider = np.full((len(self._array), width), self._fill, dtype=kind)
            wider[: self._rows, : self.width] = self._array[: self._rows]
            self._array = wider
        rows = self._rows + len(block)
        if rows > len(self._array):
            spare = min(rows, STEP_BYTES // max(1, self.width * self._array.itemsize))
            self._array.resize((rows + spare, self.width), refcheck=False)
        self._array[self._rows : rows, : block.shape[1]] = block
        self._array[self._rows : rows, block.shape[1] :] = self._fill
        self._rows = rows

    def taken(self) -> np.ndarray:
        """Return the rows, which are no longer held here."""
        array: Any = self._array
        array.resize((self._rows, self.width), refcheck=False)
        self._array, self._rows = np.empty((0, 1), dtype=np.int8), 0
        found: np.ndarray = array
        return found
