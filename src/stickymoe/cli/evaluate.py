"""`stickymoe evaluate`: measure a trained run on a whole split."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--split", default="test", show_default=True, help="train, validation or test.")
@click.option("--batch-size", default=8, show_default=True, help="Chunks at a time.")
def evaluate(run: Path, split: str, batch_size: int) -> None:
    """Evaluate RUN, a run folder: perplexity, routing and expert-cache hit rates on a whole split.

    Writes metrics.json, the routing trace (trace-SPLIT.parquet) and report.html into the run folder.

    \b
    Example:
      stickymoe evaluate runs/soft --split test
    """
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.experiments.run import evaluate_run
    from stickymoe.experiments.tables import terminal_table

    with progress_bars() as report:
        result = evaluate_run(run, split, batch_size=batch_size, progress=report)
    console().print(terminal_table([result]))
    parameters = result.read.parameters
    click.echo(f"parameters: {parameters.total:,}, of which {parameters.active:,} serve a token")
    click.echo(f"metrics: {run / 'metrics.json'}   report: {run / 'report.html'}")
