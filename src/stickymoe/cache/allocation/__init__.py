"""How to divide slots among layers, and whether it pays on sequences it was not fitted to."""

from stickymoe.cache.allocation.judge import allocate, miss_curves
from stickymoe.cache.allocation.report import AllocationReport
from stickymoe.cache.allocation.split import best_split, best_split_of_bytes, equal_split, misses_of

__all__ = [
    "AllocationReport",
    "allocate",
    "best_split",
    "best_split_of_bytes",
    "equal_split",
    "miss_curves",
    "misses_of",
]
