"""Bootstrap intervals: means, paired differences, and what resampled sums give."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least

# Resampled sums held at once, in numbers.
AT_ONCE = 2**22


@dataclass(frozen=True)
class Interval:
    """A mean and where it may lie.

    Args:
        mean: The value found.
        low: Lower end; None where there is nothing to resample.
        high: Upper end.
        n: Units resampled.
    """

    mean: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Resampling:
    """How intervals are made.

        interval = value +- t[n - 1] * sqrt(n / (n - 1)) * standard deviation over resamples

    n units are drawn with replacement, `resamples` times, each time giving a value. Student's t and the factor make up
    for the spread that few units hide; unlike percentiles the interval always holds its value, also that of entropy,
    which resampling lowers.

    Args:
        resamples: How often units are drawn, >= 2.
        confidence: Between 0 and 1.
        seed: Equal seeds give equal intervals.
    """

    resamples: int = 500
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        require_at_least("resamples", self.resamples, 2)
        if not 0 < self.confidence < 1:
            raise SettingError.broken("confidence", "between 0 and 1", self.confidence)

    def draws(self, n: int) -> Float[np.ndarray, "resamples n"]:
        """Return how often each of `n` units was drawn in each resample."""
        draws = np.random.default_rng(self.seed).multinomial(n, np.full(n, 1 / n), size=self.resamples)
        return draws.astype(np.float64)

    def half_width(self, deviation: float | np.ndarray, n: int) -> float | np.ndarray:
        """Return half the width of an interval from the standard deviation over resamples of `n` units."""
        return student_quantile(n - 1, (1 + self.confidence) / 2) * math.sqrt(n / (n - 1)) * deviation


def mean_interval(values: Sequence[float] | np.ndarray, resampling: Resampling | None = None) -> Interval:
    """Return the mean of independent values and its interval.

    Args:
        values: One a unit, at least one, finite.
        resampling: 500 resamples and 95 % if not given.

    Returns:
        Mean, interval and n; no interval for a single value.
    """
    resampling = resampling or Resampling()
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise SettingError(f"values must be at least one finite number each, got {_short(values)}")
    mean, n = float(found.mean()), int(found.size)
    if n < 2:
        return Interval(mean, None, None, n)
    half = float(resampling.half_width((resampling.draws(n) @ found / n).std(), n))
    return Interval(mean, mean - half, mean + half, n)


def paired_interval(
    before: Sequence[float] | np.ndarray, after: Sequence[float] | np.ndarray, resampling: Resampling | None = None
) -> Interval:
    """Return the mean of `after - before` over pairs of the same unit, and its interval.

    Narrower than two intervals side by side suggest wherever what makes a unit hard makes it hard for both.
    """
    left, right = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if left.shape != right.shape:
        raise SettingError(f"paired values must be as many before as after, got {left.size} and {right.size}")
    return mean_interval(right - left, resampling)


def resampled(
    sums: Float[np.ndarray, "units columns"],
    finish: Callable[[np.ndarray], np.ndarray],
    draws: Float[np.ndarray, "resamples units"],
) -> Float[np.ndarray, " resamples"]:
    """Return what `finish` makes of the units' sums in each resample, a slice of resamples at a time."""
    return np.concatenate([finish(part @ sums) for part in _slices(draws, sums.shape[1])])


@cache
def student_quantile(freedom: int, probability: float) -> float:
    """Return the quantile of Student's t by bisecting its distribution function.

    Args:
        freedom: Degrees of freedom, >= 1.
        probability: Between 0.5 and 1.
    """
    low, high = 0.0, 1.0
    while _student_above(high, freedom) > 1 - probability:
        high *= 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _student_above(middle, freedom) > 1 - probability else (low, middle)
    return (low + high) / 2


def _student_above(t: float, freedom: int) -> float:
    """Chance that Student's t exceeds `t`; the closed sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    if freedom > 1000:
        # So close to the normal that one correction does (26.7.8).
        return 1 - NormalDist().cdf(t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom)))
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term = cosine if freedom % 2 else 1.0
    total = 0.0 if freedom == 1 else term
    for step in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if freedom % 2 else math.sin(angle) * total
    return (1 - inside) / 2


def _slices(draws: np.ndarray, columns: int) -> Iterator[np.ndarray]:
    rows = max(1, AT_ONCE // max(1, columns))
    for start in range(0, len(draws), rows):
        yield draws[start : start + rows]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
