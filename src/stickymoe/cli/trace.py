"""`stickymoe trace`: look into routing traces of any format, and turn one into another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stickymoe.cli.reading import plain_warnings, reading_options


@click.group()
def trace() -> None:
    """Routing traces: what a file holds, its first tokens, and other formats.

    \b
    Example:
      stickymoe trace info qwen.route.csv
    """


@trace.command()
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(file: Path, read: Callable[[], Any], as_json: bool) -> None:
    """Say what FILE holds: model, layers, experts, tokens, phases, and what else it knows.

    \b
    Examples:
      stickymoe trace info qwen.route.csv
      stickymoe trace info routed.npy --format vllm --num-experts 128
    """
    import json

    from stickymoe.experiments.diagnosis.listing import describe_input

    facts = describe_input(read(), file.name)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {_worded(value)}")


@trace.command()
@reading_options
@click.option("-n", "--tokens", type=click.IntRange(min=1), default=5, show_default=True, help="Tokens to show.")
@click.option("--layers", metavar="NAMES", help="Layers to show, by name, with commas; all if not given.")
def head(file: Path, read: Callable[[], Any], tokens: int, layers: str | None) -> None:
    """Print the first tokens of FILE: one line a token and layer, experts in rank order, with weights if known.

    \b
    Examples:
      stickymoe trace head qwen.route.csv
      stickymoe trace head code.npz -n 20 --layers 0,12
    """
    from stickymoe.experiments.diagnosis.listing import listed_tokens
    from stickymoe.traces import require_ordered

    found = require_ordered(read(), "a list of tokens").head(tokens)
    if layers is not None:
        found = found.select(layers=[name.strip() for name in layers.split(",")])
    for line in listed_tokens(found):
        click.echo(line)


@trace.command()
@reading_options
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--to", "to", metavar="FORMAT", help="Format of OUT; by its suffix if not given.")
def convert(file: Path, read: Callable[[], Any], out: Path, to: str | None) -> None:
    """Read FILE in any format and write OUT, for this tool or another.

    OUT may be .parquet, which keeps everything, .npz, .jsonl, .csv (llama.cpp) or .txt (colibri). What a format has no
    room for is named in a warning.

    \b
    Examples:
      stickymoe trace convert qwen.route.csv qwen.parquet
      stickymoe trace convert qwen.route.csv qwen.txt --to colibri
    """
    from stickymoe.cli.progress import progress_bars
    from stickymoe.experiments.diagnosis.listing import export_format
    from stickymoe.traces import require_ordered, write_trace_as

    format_ = export_format(out, to)
    with plain_warnings(), progress_bars() as report:
        report("reading the trace", 0, None)
        found = require_ordered(read(), "another format")
        report("writing the trace", 0, None)
        write_trace_as(found, out, format_)
    click.echo(f"{out}: {found.num_tokens:,} tokens, {found.num_layers} layers, as {format_}")


def _worded(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "not told" if value is None else str(value)
