"""Training curves out of the rows of a training log, thinned where there are many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from stickymoe.experiments.comparison import Row
from stickymoe.experiments.looks import Look
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.svg import INK

MOST_POINTS = 150
LogValue = Callable[[dict[str, Any]], float | None]


def cross_entropy(row: dict[str, Any]) -> float | None:
    """Return a log row's cross-entropy, if it has one."""
    value = row.get("cross_entropy")
    return float(value) if isinstance(value, int | float) else None


def mean_over_layers(name: str) -> LogValue:
    """Return a function of a log row: the mean over layers of a measure, if the row has it."""

    def value(row: dict[str, Any]) -> float | None:
        values = row.get(name)
        known = (
            [each for each in values if each is not None] if isinstance(values, list) else []
        )  # null: nothing counted
        return sum(known) / len(known) if known else None

    return value


mean_switch_rate = mean_over_layers("switch_rate")


def series(result: RunResult, value_of: LogValue) -> tuple[list[float], list[float]]:
    """Return steps and values of the log rows that hold the value; above `MOST_POINTS` rows, means of neighbours."""
    pairs = [(row["step"], value) for row in result.log if (value := value_of(row)) is not None]
    size = max(1, -(-len(pairs) // MOST_POINTS))
    bunches = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    steps = [sum(step for step, _ in bunch) / len(bunch) for bunch in bunches]
    return steps, [sum(value for _, value in bunch) / len(bunch) for bunch in bunches]


def draw_curves(axes: Sequence[Axes], rows: Sequence[Row], looks: Mapping[str, Look]) -> None:
    """Draw cross-entropy for every run on the first axes, the mean switch rate for routed runs on the second."""
    for row in rows:
        look = looks[row.name]
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dashes, "linewidth": 1.1}
        axes[0].plot(*series(row.result, cross_entropy), label=row.label, **style)
        if not row.is_dense:
            axes[1].plot(*series(row.result, mean_switch_rate), **style)
    for ax, title in zip(axes, ("Cross-entropy, nats a token", "Mean switch rate"), strict=True):
        ax.set_title(title, fontsize=9.5, loc="left", color=INK)
        ax.set_xlabel("Step")
        ax.locator_params(axis="x", nbins=4)
