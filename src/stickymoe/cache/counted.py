"""Hits and misses added up over layers, alike for every report of a replay."""

import numpy as np
from jaxtyping import Int


class Counted:
    """A report that counts lookups by layer.

    Args:
        hits_per_layer: Lookups whose expert was there.
        misses_per_layer: Lookups that had to load.
    """

    hits_per_layer: Int[np.ndarray, " layers"]
    misses_per_layer: Int[np.ndarray, " layers"]

    @property
    def hits(self) -> int:
        """Hits over all layers."""
        return int(self.hits_per_layer.sum())

    @property
    def misses(self) -> int:
        """Misses over all layers."""
        return int(self.misses_per_layer.sum())


class CountedBeside(Counted):
    """A report that stands beside the same cache without what it changed.

    Args:
        plain_misses_per_layer: Misses of that cache.
    """

    plain_misses_per_layer: Int[np.ndarray, " layers"]

    @property
    def plain_misses(self) -> int:
        """Misses of the same cache without the change, over all layers."""
        return int(self.plain_misses_per_layer.sum())
