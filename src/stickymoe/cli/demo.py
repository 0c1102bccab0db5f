"""`stickymoe demo`: the whole loop on real text, ending in a report."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Folder of runs and report."
)
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time; one a core, at most all, if not given.")
@click.option("--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override the recipe; repeatable.")
def demo(out: Path, jobs: int | None, overrides: tuple[str, ...]) -> None:
    """Train an ordinary router, two sticky ones and a dense control on real English, and compare them.

    Needs no network and no GPU. Interrupted or killed, the same command goes on where it was.

    \b
    Example:
      stickymoe demo --out demo
    """
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.experiments.demo import run_demo
    from stickymoe.experiments.headline import headline
    from stickymoe.experiments.tables import terminal_table

    with progress_bars() as report:
        results, page = run_demo(out, jobs=jobs, overrides=overrides, progress=report)
    console().print(terminal_table(results))
    click.echo(headline(results))
    click.echo(f"report: {page}")
