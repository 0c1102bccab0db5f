"""`Measures`: all that was measured of a trace, as rows, as JSON and as a plain table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.metrics.drifting import Drift
from stickymoe.metrics.predictors import Prediction
from stickymoe.metrics.skew import Locality
from stickymoe.metrics.tally import Value

# A matrix of more units than this is left out of the JSON form; its mean and smallest value stay.
MOST_SIMILAR = 32


@dataclass(frozen=True)
class Row:
    """One figure of one phase.

    Args:
        phase: `all`, `prefill` or `decode`.
        name: The figure.
        parameters: Such as `{"lag": 4}`; empty for most.
        value: What was found.
        unit: Of the value: `share`, `bits`, `experts`, `std over mean`, `over the mean`, `over k`.
        chance: What routing at random would give, where that is known.
    """

    phase: str
    name: str
    parameters: Mapping[str, int]
    value: Value
    unit: str
    chance: float | None = None


@dataclass(frozen=True)
class Measures:
    """Everything measured of one trace.

    Args:
        sizes: `tokens`, `sequences`, `layers`, `num_experts`, `top_k`; for a profile those that it knows.
        layer_names: One a layer.
        rows: Figures by phase.
        locality: Popularity against recency, by phase and capacity.
        drift: Coverage across sequences, by capacity.
        predictions: Recall of simple predictors.
        resampling: How intervals were made, with `units`, what was drawn; None where none were.
        notes: What is not defined and why, and what limits the intervals.
    """

    sizes: Mapping[str, int]
    layer_names: Sequence[str]
    rows: Sequence[Row]
    locality: Sequence[tuple[str, Locality]] = ()
    drift: Sequence[Drift] = ()
    predictions: Sequence[Prediction] = ()
    resampling: Mapping[str, Any] | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    def find(self, name: str, phase: str = "all", **parameters: int) -> Row:
        """Return the row of a figure.

        Raises:
            SettingError: There is none; the nearest name is told.
        """
        for row in self.rows:
            if (row.name, row.phase, dict(row.parameters)) == (name, phase, parameters):
                return row
        known = sorted({row.name for row in self.rows})
        raise SettingError.broken("measure", f"one measured in phase {phase!r}", name, nearest(name, known))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it: finite numbers, and null where something is not defined."""
        return {
            "schema": 1,
            "sizes": dict(self.sizes),
            "layer_names": list(self.layer_names),
            "resampling": None if self.resampling is None else dict(self.resampling),
            "measures": [_row(row) for row in self.rows],
            "locality": [{"phase": phase, **_locality(each)} for phase, each in self.locality],
            "drift": [_drift(each) for each in self.drift],
            "predictors": [_prediction(each) for each in self.predictions],
            "notes": list(self.notes),
        }


def _value(value: Value | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _row(row: Row) -> dict[str, Any]:
    found = {"phase": row.phase, "name": row.name, "parameters": dict(row.parameters), "unit": row.unit}
    return {**found, "chance": row.chance, **asdict(row.value)}


def _locality(each: Locality) -> dict[str, Any]:
    return {**asdict(each), "order_share": each.order_share, "verdict": each.verdict}


def _drift(each: Drift) -> dict[str, Any]:
    alike = each.similarity
    others = [
        float(alike[a, b])
        for a in range(len(alike))
        for b in range(len(alike))
        if a != b and not math.isnan(alike[a, b])
    ]
    return {
        "capacity": each.capacity,
        "units": each.kind,
        "own": _value(each.own),
        "held_out": _value(each.held_out),
        "drift": _value(each.drift),
        "coverage": _numbers(each.coverage.tolist()),
        "similarity_mean": sum(others) / len(others) if others else None,
        "similarity_least": min(others, default=None),
        "similarity": [_numbers(row) for row in alike.tolist()] if len(alike) <= MOST_SIMILAR else None,
    }


def _prediction(each: Prediction) -> dict[str, Any]:
    found = {"predictor": each.predictor, "budget": each.budget, "chance": each.chance, "without": each.without}
    return {**found, "recall": _value(each.recall), "over_fetch": _value(each.over_fetch)}


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]
