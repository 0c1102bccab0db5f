"""Long tables, one row a (token, layer, slot), as the arrays of a trace: bounds first, no row twice, no hole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions

# A table with a smaller share of its cells filled has wrong layer or slot numbers, and would be mostly holes in memory
LEAST_FILLED = 1 / 64
SMALL = 2**16
BYTES_A_SLOT = 16


@dataclass(frozen=True)
class Cells:
    """Where each row of a long table belongs.

    Args:
        tokens: Tokens in all.
        token: The token of each row, from 0.
        layer: The layer of each row, as the file numbers it; below 2**16.
        slot: The slot of each row, from 0.
        top_k: Slots a token and layer.
    """

    tokens: int
    token: np.ndarray
    layer: np.ndarray
    slot: np.ndarray
    top_k: int

    @cached_property
    def layers(self) -> np.ndarray:
        """The layers met, as the file numbers them, in order."""
        return np.flatnonzero(np.bincount(self.layer))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Tokens, layers, slots."""
        return self.tokens, len(self.layers), self.top_k

    @cached_property
    def flat(self) -> np.ndarray:
        """The place of each row in the flattened array."""
        place = np.zeros(int(self.layers[-1]) + 1, dtype=np.int64)
        place[self.layers] = np.arange(len(self.layers))
        flat: np.ndarray = (self.token * len(self.layers) + place[self.layer]) * self.top_k + self.slot
        return flat

    def check(self, options: ReadOptions) -> None:
        """Raise before any array is made where it would not fit, or be mostly holes."""
        tokens, layers, top_k = self.shape
        found = f"{tokens} tokens, {layers} layers and {top_k} slots"
        for name, count in (("num_layers", layers), ("top_k", top_k)):
            if (wanted := getattr(options, name)) not in (None, count):
                raise TraceError(f"rows must have {name} {wanted}, got {count}")
        size = tokens * layers * top_k
        if size > SMALL and len(self.token) < LEAST_FILLED * size:
            raise TraceError(f"rows must fill 1/64 of {found}, got {len(self.token)} rows; are layers and slots right?")
        options.require_room(BYTES_A_SLOT * size, found)

    def repeated(self) -> int | None:
        """Return the first row that says again what an earlier one has said; None if there is none."""
        if np.count_nonzero(self.array(np.True_, bool, 0)) == len(self.flat):
            return None
        order = np.argsort(self.flat, kind="stable")
        again = order[1:][self.flat[order[1:]] == self.flat[order[:-1]]]
        return int(again.min()) if again.size else None

    def array(self, values: np.ndarray | np.generic, dtype: Any, empty: int) -> np.ndarray:
        """Return the rows' values as (tokens, layers, top_k), `empty` where no row is."""
        array = np.full(self.shape, empty, dtype)
        array.reshape(-1)[self.flat] = values
        return array

    def filled(self) -> np.ndarray:
        """Return how many slots each (token, layer) fills."""
        counts = np.bincount(self.flat // self.top_k, minlength=self.tokens * len(self.layers))
        return counts.reshape(self.tokens, len(self.layers))
