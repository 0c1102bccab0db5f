"""`stickymoe report`: a sweep's tables, figures and verdicts, from its rows."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path), metavar="SWEEP")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the report; that of SWEEP if not given.")
def report(sweep: Path, out: Path | None) -> None:
    """Rebuild the report of SWEEP, a sweep's folder or a Parquet file of its rows: report.html and report.md.

    Needs the rows alone. Runs that are missing or were cut short are listed, never shown as finished.

    \b
    Examples:
      stickymoe report results/demo
      stickymoe report rows.parquet --out report
    """
    from stickymoe.experiments.sweep_report.report import write_sweep_report

    contents, page = write_sweep_report(sweep, out)
    click.echo(contents.headline)
    for claim in contents.claims:
        click.echo(f"{claim.verdict.value:<25} {claim.where:<23} {claim.claim}")
    click.echo(f"report: {page}")
