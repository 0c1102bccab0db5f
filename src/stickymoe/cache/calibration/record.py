"""`Calibration`: the measured constants of one machine, each with its spread.

No `from __future__ import annotations` here: pydantic reads the field types at run time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import ConfigDict, Field

from stickymoe.core.errors import SettingError, StickyMoEError
from stickymoe.core.settings import require_one_of

VERSION: Literal[1] = 1
# How an expert reaches the processor. `disk-*` bypass the page cache, `page-cache` is a file read already in memory,
# `memory` a copy inside it, `device` a copy from host memory to the accelerator.
LinkName = Literal["disk-random", "disk-sequential", "page-cache", "memory", "device"]
LINKS: tuple[LinkName, ...] = get_args(LinkName)
PERCENTILES = ("p20", "p50", "p80")
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Seconds = Annotated[float, Field(gt=0, lt=1e6)]
Count = Annotated[int, Field(ge=1, lt=2**50)]
Text = Annotated[str, Field(max_length=1000)]


class CalibrationError(StickyMoEError):
    """A calibration file is damaged, of another version or without the measurement that is asked for."""


@dataclass(frozen=True)
class Spread:
    """A measured time in seconds: the median, and the percentiles 20 and 80 as its honest range."""

    __pydantic_config__ = STRICT

    p20: Seconds
    p50: Seconds
    p80: Seconds
    samples: Count

    def __post_init__(self) -> None:
        """Check the order."""
        if not self.p20 <= self.p50 <= self.p80:
            raise SettingError.broken("spread", "p20 <= p50 <= p80", (self.p20, self.p50, self.p80))

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Spread":
        """Summarise samples."""
        values = np.fromiter(seconds, dtype=np.float64)
        low, middle, high = np.percentile(values, [20, 50, 80]).tolist()
        return cls(low, middle, high, values.size)


@dataclass(frozen=True)
class Link:
    """Time of one transfer over one link while `queue_depth` of them are under way.

        seconds(bytes) = latency + bytes / bandwidth

    Two sizes are measured and the line goes through both: an expert of the measured size costs what was measured.
    Times are per transfer of a full queue: at depth 4, four transfers take four times as long as one is told to.

    Args:
        name: One of `LINKS`.
        queue_depth: Transfers under way at once.
        block_bytes: The large size: an expert.
        small_bytes: The small size: what a transfer costs however little it brings.
        block: Time of a large transfer.
        small: Time of a small transfer.
    """

    __pydantic_config__ = STRICT

    name: LinkName
    queue_depth: Count
    block_bytes: Count
    small_bytes: Count
    block: Spread
    small: Spread

    def __post_init__(self) -> None:
        """Check that two sizes differ."""
        if not self.small_bytes < self.block_bytes:
            found = (self.small_bytes, self.block_bytes)
            raise SettingError.broken("link.small_bytes", "below link.block_bytes", found)

    def bandwidth_bytes_s(self, percentile: str = "p50") -> float:
        """Bytes a second beyond the latency; `p20` is the fast end, times being what is measured."""
        require_one_of("percentile", percentile, PERCENTILES)
        large, small = getattr(self.block, percentile), getattr(self.small, percentile)
        if large <= small or small * self.block_bytes <= large * self.small_bytes:
            # Noise hid the size, or small transfers come out of a nearer memory: they tell nothing about this link.
            return float(self.block_bytes / large)
        return float((self.block_bytes - self.small_bytes) / (large - small))

    def latency_s(self, percentile: str = "p50") -> float:
        """Seconds a transfer costs before its first byte, >= 0."""
        rate = self.bandwidth_bytes_s(percentile)
        return max(0.0, float(getattr(self.block, percentile)) - self.block_bytes / rate)

    def seconds(self, num_bytes: float, percentile: str = "p50") -> float:
        """Seconds of one transfer of `num_bytes`."""
        return self.latency_s(percentile) + num_bytes / self.bandwidth_bytes_s(percentile)


@dataclass(frozen=True)
class Calibration:
    """What one machine needs to move and to compute an expert.

    Args:
        expert_bytes: The size that was measured.
        links: One a kind of transfer and queue depth.
        matmul: Time of one expert's matrix products for one token, at that size; None where not measured.
        hardware: Processor, memory, file system and whatever else the numbers depend on.
        date: When it was measured, ISO 8601.
        notes: What was measured otherwise than meant, each one line.
        version: Of the file format.
    """

    __pydantic_config__ = STRICT

    expert_bytes: Count
    links: Annotated[tuple[Link, ...], Field(min_length=1, max_length=1000)]
    matmul: Spread | None
    hardware: dict[Text, Text | int | float]
    date: Text
    notes: tuple[Text, ...] = field(default=())
    version: Literal[1] = VERSION

    def __post_init__(self) -> None:
        """Check that no link stands there twice."""
        keys = [(link.name, link.queue_depth) for link in self.links]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise SettingError.broken("links", "one a name and queue depth", twice)

    def link(self, name: str, queue_depth: int | None = None) -> Link:
        """Return the link of that name measured at the largest depth up to `queue_depth`.

        Args:
            name: One of `LINKS`.
            queue_depth: Transfers under way at once, 1 if not given. Below the least measured depth, that one.

        Raises:
            CalibrationError: The link was not measured.
        """
        require_one_of("link", name, LINKS)
        found = sorted((link for link in self.links if link.name == name), key=lambda link: link.queue_depth)
        if not found:
            measured = ", ".join(dict.fromkeys(link.name for link in self.links))
            raise CalibrationError(
                f"the calibration must have measured {name!r}, found {measured}; calibrate on the machine that has it"
            )
        return next((link for link in reversed(found) if link.queue_depth <= (queue_depth or 1)), found[0])
