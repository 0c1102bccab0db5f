"""Measured constants applied to counts: what computing and loading take, each as fast, middle and slow."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from stickymoe.cache.calibration import Calibration, CalibrationError, Link
from stickymoe.cache.calibration.record import PERCENTILES
from stickymoe.cache.capacity import checked_expert_bytes
from stickymoe.cache.cost.prediction import MS, Range
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least

Sizes = Float[np.ndarray, " layers"]


def sizes_of_layers(expert_bytes: Any, layers: int) -> Sizes:
    """Return the bytes of one expert of each layer."""
    sizes = checked_expert_bytes(expert_bytes, layers)
    if sizes is None:
        raise SettingError.broken("cache.expert_bytes", "given, loads cost by their bytes", None)
    return sizes.astype(np.float64)


def expert_ms(calibration: Calibration, expert_bytes: float, percentile: str = "p50") -> float:
    """Return the measured milliseconds of one expert's products for one token, scaled by size."""
    if calibration.matmul is None:
        raise CalibrationError("the calibration must have measured an expert's products, found none; give compute_ms")
    return float(MS * getattr(calibration.matmul, percentile) * expert_bytes / calibration.expert_bytes)


def compute_range(
    calibration: Calibration,
    lookups: Int[np.ndarray, " layers"],
    tokens: int,
    sizes: Sizes,
    other_ms: float,
    compute_ms: float | None,
) -> Range:
    """Return the milliseconds of computing a token: as given, or the experts' products and what goes beside them."""
    require_at_least("cost.other_ms", other_ms, 0.0)
    if compute_ms is not None:
        require_at_least("cost.compute_ms", compute_ms, 0.0)
        return compute_ms, compute_ms, compute_ms
    used = float(lookups @ sizes) / tokens
    fast, middle, slow = (expert_ms(calibration, used, each) + other_ms for each in PERCENTILES)
    return fast, middle, slow


def compute_told(other_ms: float, compute_ms: float | None) -> str:
    """Say what computing holds."""
    if compute_ms is not None:
        return f"given as {compute_ms:g} ms a token"
    return f"experts as measured, the rest {other_ms:g} ms" if other_ms else "experts alone, nothing else of the model"


def load_ms(link: Link, sizes: Sizes, percentile: str = "p50") -> Sizes:
    """Return the milliseconds of loading one expert of each layer."""
    return MS * (link.latency_s(percentile) + sizes / link.bandwidth_bytes_s(percentile))


def load_range(link: Link, loads: Int[np.ndarray, " layers"], tokens: int, sizes: Sizes) -> Range:
    """Return the milliseconds of all loads a token."""
    fast, middle, slow = (float(loads @ load_ms(link, sizes, each)) / tokens for each in PERCENTILES)
    return fast, middle, slow


def loads_at_once(loads: Int[np.ndarray, " layers"], tokens: int) -> int:
    """Return an event's mean loads, rounded down but 1 at least: how deep the queue is taken to be."""
    return max(1, int(loads.sum()) // (tokens * len(loads)))
