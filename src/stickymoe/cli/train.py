"""`stickymoe train`: one recipe, one run folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command()
@click.argument("recipe")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder; runs/NAME if not given.")
@click.option("--set", "overrides", multiple=True, metavar="TABLE.KEY=VALUE", help="Override the recipe; repeatable.")
@click.option("--resume", is_flag=True, help="Go on from the last good checkpoint of the run folder.")
@click.option("--split", default="validation", show_default=True, help="Split to evaluate on when training ends.")
def train(recipe: str, out: Path | None, overrides: tuple[str, ...], resume: bool, split: str) -> None:
    """Train RECIPE, a TOML file or the name of a shipped one, then evaluate it.

    [model] architecture = "mixtral", or any other MoE language model of transformers, trains that instead of the
    reference model; its other keys are then those of the architecture's config.

    The run folder gets the resolved recipe, the log, checkpoints, the model, metrics.json and report.html. Killed or
    interrupted, the same command with --resume goes on where the last checkpoint was written.

    \b
    Examples:
      stickymoe train demo --set objective.consistency=0.1 --out runs/soft
      stickymoe train recipes/paper-small.toml --set data.corpus=path/to/wikitext-2-raw
      stickymoe train mixtral-small --set objective.consistency=0.1 --out runs/mixtral-soft
      stickymoe train demo --set objective.consistency=0.1 --out runs/soft --resume
    """
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.experiments.recipe_file import load_recipe
    from stickymoe.experiments.run import train_run
    from stickymoe.experiments.tables import terminal_table
    from stickymoe.training import Interrupted

    resolved = load_recipe(recipe, overrides)
    folder = out or Path("runs") / resolved.name
    try:
        with progress_bars() as report:
            result = train_run(resolved, folder, resume=resume, split=split, progress=report)
    except (Interrupted, KeyboardInterrupt) as stop:
        words = [word for override in overrides for word in ("--set", override)]
        go_on = shlex.join(["stickymoe", "train", recipe, *words, "--out", str(folder), "--split", split, "--resume"])
        stop.args = (f"{str(stop) or 'interrupted'}; the command: {go_on}",)
        raise
    if result is None:
        return  # one of several processes, not the first
    console().print(terminal_table([result]))
    parameters = result.read.parameters
    click.echo(f"parameters: {parameters.total:,}, of which {parameters.active:,} serve a token")
    click.echo(f"run: {folder}   report: {folder / 'report.html'}")
