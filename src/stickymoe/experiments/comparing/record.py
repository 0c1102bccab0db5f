"""`Comparison`: everything found of two subjects, as data and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.experiments.diagnosis.curves import Curve


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; no interval where there is one unit, or nothing to pair."""

    value: float
    low: float | None = None
    high: float | None = None

    def mapped(self, of: Any) -> Estimate:
        """Return what a rising function makes of value and ends."""
        ends = [None if end is None else of(end) for end in (self.low, self.high)]
        return Estimate(of(self.value), ends[0], ends[1])

    @property
    def is_clear(self) -> bool:
        """Whether the interval is there and 0 is outside of it."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Line:
    """One figure of both.

    Args:
        name: Its key.
        group: quality, locality, cache or price.
        label: For readers.
        unit: nats, bits, share, times, or perplexity, whose difference is a share of the first's.
        first: Of A.
        second: Of B.
        difference: B less A.
        layers: Of A and of B, layer by layer, where the figure has layers.
    """

    name: str
    group: str
    label: str
    unit: str
    first: Estimate
    second: Estimate
    difference: Estimate
    layers: tuple[tuple[float | None, ...], tuple[float | None, ...]] = ((), ())


@dataclass(frozen=True)
class DocumentLine:
    """One document: its predicted tokens, and the perplexity of both."""

    name: str
    tokens: int
    first: float
    second: float

    @property
    def change(self) -> float:
        """By how much the second's is higher, as a share of the first's."""
        return self.second / self.first - 1


@dataclass(frozen=True)
class Side:
    """What one of the two is."""

    name: str
    model: str
    layers: int
    num_experts: int
    top_k: int
    tokens: int
    sequences: int
    layer_names: tuple[str, ...]

    @property
    def line(self) -> str:
        """The side in one line."""
        what = f" ({self.model})" if self.model else ""
        return f"{self.name}{what}: {self.layers} layers × {self.num_experts} experts, top-{self.top_k}"


@dataclass(frozen=True)
class Comparison:
    """Everything found.

    Args:
        first: A.
        second: B.
        text: What was read, in words.
        lines: The figures, in reading order.
        curves: Hit rates of A and of B, by policy.
        documents: The documents, in order; none for traces.
        counted: How the caches were counted.
        units: What intervals are drawn over.
        notes: What to know beside.
    """

    first: Side
    second: Side
    text: str
    lines: Sequence[Line]
    curves: tuple[Sequence[Curve], Sequence[Curve]]
    documents: Sequence[DocumentLine]
    counted: str
    units: str
    notes: Sequence[str] = field(default_factory=tuple)

    def find(self, name: str) -> Line:
        """Return the line of a figure.

        Raises:
            SettingError: There is none.
        """
        for line in self.lines:
            if line.name == name:
                return line
        raise SettingError.broken("figure", "one that was compared", name)

    def has(self, name: str) -> bool:
        """Tell whether there is such a line."""
        return any(line.name == name for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        return {
            "schema": 1,
            "first": asdict(self.first),
            "second": asdict(self.second),
            "text": self.text,
            "intervals": f"95 %, bootstrap over {self.units}",
            "counted": self.counted,
            "figures": [asdict(line) for line in self.lines],
            "curves": {
                side: [
                    {"policy": each.policy, "capacities": each.capacities, "hit_rates": each.hit_rates}
                    for each in curves
                ]
                for side, curves in zip(("first", "second"), self.curves, strict=True)
            },
            "documents": [asdict(each) | {"change": each.change} for each in self.documents],
            "notes": list(self.notes),
        }


def perplexity(nats: float) -> float:
    """Return e to the cross-entropy, infinite where no float holds it."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
