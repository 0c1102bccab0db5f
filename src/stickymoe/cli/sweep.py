"""`stickymoe sweep`: a grid of runs, resumed after any end, and a row for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from stickymoe.experiments.sweeps.entry import Entry
    from stickymoe.experiments.sweeps.sweep import SweepProgress


@click.command()
@click.argument("sweep")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of runs and rows; results/NAME if not given.")
@click.option(
    "--launcher",
    default="local",
    show_default=True,
    metavar="NAME",
    help="Where runs are started: local, ray or slurm.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at a time; as many as the launcher has room for if not given."
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Only runs SIZE/SEED/VARIANT or variants that match; repeatable."
)
@click.option("--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override all recipes; repeatable.")
@click.option("--cluster", "options", multiple=True, metavar="KEY=VALUE", help="An option of Ray or SLURM; repeatable.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
def sweep(
    sweep: str,
    out: Path | None,
    launcher: str,
    jobs: int | None,
    only: tuple[str, ...],
    overrides: tuple[str, ...],
    options: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Run SWEEP, a TOML file or the name of a shipped one: variants x sizes x seeds, a row for each run.

    Runs whose results stand are kept, interrupted ones go on, a failed one is set apart and the rest goes on. Ctrl-C is
    safe at any moment; the same command goes on.

    \b
    Examples:
      stickymoe sweep demo --dry-run
      stickymoe sweep demo --jobs 2
      stickymoe sweep paper-short --only 'small/42/soft*'
      stickymoe sweep paper --launcher slurm --cluster slurm_partition=gpu --cluster gpus_per_node=1
    """
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.core.errors import TrainingError
    from stickymoe.experiments.launchers.registry import open_launcher
    from stickymoe.experiments.sweeps.sweep import run_sweep, survey
    from stickymoe.experiments.sweeps.sweep_file import load_sweep
    from stickymoe.experiments.sweeps.table import plan_table, summary

    grid = load_sweep(sweep, overrides)
    folder = out or Path("results") / grid.name
    with progress_bars() as report:
        if dry_run:
            entries = survey(grid, folder, only=only, loading=report)
    if dry_run:
        console().print(plan_table(entries))
        click.echo(summary(entries, jobs or 1))
        return
    opened = open_launcher(launcher, folder, options)
    parallel = jobs or opened.slots()
    with _live(parallel) as show:
        entries = run_sweep(grid, folder, launcher=opened, parallel=parallel, only=only, progress=show)
    lost = [entry for entry in entries if entry.is_lost]
    for entry in lost:
        click.echo(f"{entry.run.name} {entry.job.reason if entry.job else ''}", err=True)
    click.echo(f"{summary(entries, parallel)}; rows in {folder / 'rows'}")
    if lost:
        raise TrainingError(
            f"{len(lost)} of {len(entries)} runs have no result; mend the cause and run the same command, "
            "which keeps the others"
        )


@contextmanager
def _live(parallel: int) -> Iterator[SweepProgress]:
    """Yield what shows the runs: a table that lives on a terminal, else a line whenever a run changes its state."""
    from rich.console import Console
    from rich.live import Live

    from stickymoe.experiments.sweeps.table import live_table

    err = Console(stderr=True)
    if not err.is_terminal:
        yield _Lines()
        return
    with Live(console=err, transient=True, refresh_per_second=4) as live:
        yield lambda entries: live.update(live_table(entries, parallel, err.height))


class _Lines:
    """Prints a line for each run that begins or ends."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def __call__(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            name, state = entry.run.name, entry.state
            if state not in ("waiting", "stands", self._told.get(name)):
                click.echo(f"{name} {state}", err=True)
            self._told[name] = state
