"""`stickymoe generate`: let a trained run write on."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--prompt", required=True, help="Text to go on from.")
@click.option("--max-new-tokens", default=100, show_default=True, help="Tokens to write at most.")
@click.option("--temperature", default=0.8, show_default=True, help="0 always takes the most probable token.")
@click.option("--top-p", default=0.95, show_default=True, help="Sample from the most probable tokens of this mass.")
@click.option("--seed", default=0, show_default=True, help="Seed of the sampling.")
def generate(run: Path, prompt: str, max_new_tokens: int, temperature: float, top_p: float, seed: int) -> None:
    """Generate text with RUN, a run folder or a saved model.

    \b
    Example:
      stickymoe generate runs/soft --prompt "My fellow citizens," --max-new-tokens 60
    """
    from stickymoe.experiments.generation import generate_text

    click.echo(generate_text(run, prompt, max_new_tokens, temperature=temperature, top_p=top_p, seed=seed))
