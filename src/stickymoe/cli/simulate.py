"""`stickymoe simulate`: hits and misses of expert caches on a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stickymoe.cli.quantities import Bytes, Capacities, Capacity
from stickymoe.cli.reading import cost_options, read_file, reading_options
from stickymoe.cli.semantics import semantics_options

UNBOUNDED = 10_000


@click.command()
@reading_options
@click.option("--policy", "policies", multiple=True, default=("lru",), show_default=True, help="Policy; repeatable.")
@click.option(
    "--capacity",
    "capacities",
    type=Capacities(),
    required=True,
    help="Slots a layer (32), a share (25%), bytes (4GiB), a list (8,16,32), a range (8:64:8).",
)
@click.option("--profile", type=click.Path(path_type=Path), help="Trace or counts that static chooses by; else FILE.")
@click.option("--expert-bytes", type=Bytes(), help="Size of one expert, where FILE does not say.")
@semantics_options
@cost_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, every layer in it.")
def simulate(
    file: Path,
    read: Callable[[], Any],
    policies: tuple[str, ...],
    capacities: list[Capacity],
    profile: Path | None,
    expert_bytes: int | None,
    semantics: dict[str, Any],
    cost: Path | None,
    link: str,
    as_json: bool,
) -> None:
    """Replay FILE through expert caches and print hit rates, loads and how they were counted.

    \b
    Examples:
      stickymoe simulate qwen.route.csv --capacity 25%
      stickymoe simulate code.npz --policy lru --policy belady --capacity 8:64:8
      stickymoe simulate qwen.route.csv --capacity 4GiB --scope model --prefill pass
      stickymoe simulate code.npz --policy static --profile prose.npz --capacity 25%
    """
    import json

    from stickymoe.cache.calibration import load_calibration
    from stickymoe.cache.settings import Semantics
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.experiments.diagnosis.comparison import notes, replay_all, replay_table
    from stickymoe.experiments.diagnosis.inputs import with_expert_bytes
    from stickymoe.traces import require_ordered

    calibration = load_calibration(cost) if cost else None
    with progress_bars() as report:
        report("reading the trace", 0, None)
        trace = with_expert_bytes(require_ordered(read(), "a replay"), expert_bytes)
        found = replay_all(
            trace,
            policies,
            [(each.asked, each.keywords()) for each in capacities],
            Semantics(**semantics),
            profile=None if profile is None else _profile(profile, trace.num_experts),
            calibration=calibration,
            link=link,
            progress=report,
        )
    if as_json:
        click.echo(json.dumps([each.as_dict() for each in found], indent=2, allow_nan=False))
        return
    screen, table = console(), replay_table(found)
    terminal, screen.width = screen.width, UNBOUNDED
    screen.width = max(terminal, screen.measure(table).maximum)  # lines may wrap, numbers are never cut
    screen.print(table)
    click.echo(f"counted: {found[0].report.describe()}")
    for line in notes(found):
        click.echo(line)
    for line in dict.fromkeys(each.predicted.describe() for each in found if each.predicted):
        click.echo(f"time: {line}")


def _profile(path: Path, num_experts: int) -> Any:
    """Read what static chooses by; where the file does not say how many experts a layer has, as many as the trace."""
    found = read_file(path)
    guessed = found.provenance.get("num_experts_from") == "largest id + 1" and found.num_experts < num_experts
    return read_file(path, told={"num_experts": num_experts}) if guessed else found
