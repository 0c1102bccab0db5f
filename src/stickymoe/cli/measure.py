"""`stickymoe measure`: every measure of a trace's routing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stickymoe.cli.reading import reading_options


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """Whole numbers >= 1 with commas: `8,32,128`."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the numbers."""
        if isinstance(value, list):
            return value
        words = [word.strip() for word in value.split(",")]
        if not all(word.isdigit() and int(word) >= 1 for word in words):
            self.fail(f"must be whole numbers >= 1 with commas, such as 8,32, got {value!r}", param, ctx)
        return [int(word) for word in words]


@click.command()
@reading_options
@click.option("--windows", type=Numbers(), default="8,32,128", show_default=True, help="Tokens of each working set.")
@click.option("--lags", type=Numbers(), default="1,2,4,8,16", show_default=True, help="Distances of overlaps.")
@click.option("--segments", type=Numbers(), default="16,64", show_default=True, help="Tokens of each SRP and SCH.")
@click.option("--capacities", type=Numbers(), help="Slots a layer; k, 2k and 4k if not given.")
@click.option("--no-intervals", is_flag=True, help="Leave out the bootstrap intervals.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, every layer in it.")
def measure(
    file: Path,
    read: Callable[[], Any],
    windows: list[int],
    lags: list[int],
    segments: list[int],
    capacities: list[int] | None,
    no_intervals: bool,
    as_json: bool,
) -> None:
    """Measure the routing in FILE: switching, overlap, balance, reuse, working sets, skew, drift, predictors.

    \b
    Examples:
      stickymoe measure qwen.route.csv
      stickymoe measure code.npz --capacities 16,32 --json
    """
    import json

    from stickymoe.cli.progress import progress_bars
    from stickymoe.metrics import measure as measured_of
    from stickymoe.metrics import table

    with progress_bars() as report:
        report("reading the trace", 0, None)
        found = read()
        report("measuring", 0, None)
        measured = measured_of(
            found, windows=windows, lags=lags, segments=segments, capacities=capacities, intervals=not no_intervals
        )
    click.echo(json.dumps(measured.as_dict(), indent=2, allow_nan=False) if as_json else table(measured))
