"""`stickymoe diagnose`: why an expert cache misses on a trace, and what would help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stickymoe.cli.quantities import Bytes, Capacities, Capacity
from stickymoe.cli.reading import cost_options, reading_options
from stickymoe.cli.semantics import semantics_options


@click.command()
@reading_options
@click.option("--budget", type=Capacities(single=True), help="Cache size for the whole model: 4GiB, or 25%.")
@click.option("--capacity", type=Capacities(single=True), help="Cache size in slots: a layer's, or the pool's.")
@click.option("--expert-bytes", type=Bytes(), help="Size of one expert, where FILE does not say.")
@click.option("--served", type=click.IntRange(min=1), help="Experts that serve a token, where FILE has more ranks.")
@click.option("--policy", "policies", multiple=True, help="Policy to compare; repeatable; all if not given.")
@semantics_options
@cost_options
@click.option("--out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The report.")
@click.option("--no-report", is_flag=True, help="Print the summary only.")
@click.option("--json", "as_json", is_flag=True, help="Print every number as one JSON object, not the summary.")
def diagnose(
    file: Path,
    read: Callable[[], Any],
    budget: list[Capacity] | None,
    capacity: list[Capacity] | None,
    expert_bytes: int | None,
    served: int | None,
    policies: tuple[str, ...],
    semantics: dict[str, Any],
    cost: Path | None,
    link: str,
    out: Path,
    no_report: bool,
    as_json: bool,
) -> None:
    """Say why an expert cache misses on FILE and what would help: a summary here, all numbers and plots in a report.

    Without a budget, a quarter of the experts is taken. A file of counts without order gets the answers it allows.

    \b
    Examples:
      stickymoe diagnose qwen.route.csv --budget 4GiB
      stickymoe diagnose code.npz --capacity 32 --expert-bytes 2654208
      stickymoe diagnose qwen.route.csv --budget 25% --scope model --json --no-report
      stickymoe diagnose logits.npz --top-k 16 --selection softmax-topk --served 8
    """
    import json
    import shlex
    import sys

    from stickymoe.cache.calibration import load_calibration
    from stickymoe.cache.settings import Semantics
    from stickymoe.cli.progress import progress_bars
    from stickymoe.experiments.diagnosis.inputs import diagnose_input, summary_lines
    from stickymoe.experiments.diagnosis.report import write_diagnosis_report

    if budget and capacity:
        raise click.UsageError("--budget and --capacity are two ways to say one thing, give one of them")
    sizes = budget or capacity
    asked = sizes[0] if sizes else None
    calibration = load_calibration(cost) if cost else None
    with progress_bars() as report:
        report("reading the trace", 0, None)
        found = diagnose_input(
            read(),
            file.name,
            semantics=Semantics(**semantics),
            budget=vars(asked) if asked else None,
            policies=policies,
            expert_bytes=expert_bytes,
            served=served,
            calibration=calibration,
            link=link,
            progress=report,
        )
        if not no_report:
            report("writing the report", 0, None)
            write_diagnosis_report(out, found, [shlex.join(["stickymoe", *sys.argv[1:]])])
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2, allow_nan=False))
        return
    for line in summary_lines(found):
        click.echo(line)
    if not no_report:
        click.echo(f"report    {out}")
