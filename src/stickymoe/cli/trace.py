"""`stickymoe trace`: record routing traces, look into those of any format, and turn one into another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stickymoe.cli.opening import opening_options
from stickymoe.cli.reading import plain_warnings, reading_options


@click.group()
def trace() -> None:
    """Routing traces: record one, see what a file holds, its first tokens, and other formats.

    \b
    Examples:
      stickymoe trace record runs/soft --out soft.parquet
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


@trace.command()
@click.argument("model")
@click.option("--data", default="sotu", show_default=True, help="A text, .jsonl, a folder of texts, or a corpus.")
@click.option("--split", default="test", show_default=True, help="Which part of a folder or corpus.")
@click.option("--generate", "written", type=click.IntRange(min=0), default=0, help="Tokens to write after each piece.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens of text to read at most; all if not given.")
@click.option("--chunk", type=click.IntRange(min=1), help="Tokens of text a sequence; 512, or what the model can take.")
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Sequences at a time.")
@click.option("--temperature", type=click.FloatRange(min=0), default=0.8, show_default=True, help="0 never samples.")
@click.option("--top-p", default=0.95, show_default=True, help="Sample from the likeliest tokens of this mass.")
@click.option("--seed", default=0, show_default=True, help="Seed of the sampling.")
@opening_options
@click.option("--out", type=click.Path(path_type=Path), default="trace.parquet", show_default=True, help="The trace.")
@click.pass_context
def record(
    context: click.Context,
    model: str,
    data: str,
    split: str,
    written: int,
    max_tokens: int | None,
    chunk: int | None,
    batch_size: int,
    temperature: float,
    top_p: float,
    seed: int,
    dtype: str,
    device: str | None,
    out: Path,
) -> None:
    """Record what the routers of MODEL choose on a text, and on what it writes after it.

    MODEL is a folder with a saved MoE model of any family, a run of stickymoe train, or a name on the hub. The trace
    is written batch by batch and appears when it is whole. Ctrl-C ends it with the last whole batch.

    \b
    Examples:
      stickymoe trace record runs/soft
      stickymoe trace record Qwen3-30B-A3B --data chats.jsonl --generate 256 --max-tokens 20000 --out chats.parquet
    """
    from stickymoe.capture.opening import open_model
    from stickymoe.capture.recording import Recording, Writing, find_texts, record_trace
    from stickymoe.cli.progress import progress_bars
    from stickymoe.training.interrupts import StopSignals

    asked = Recording(chunk, max_tokens, batch_size, Writing(written, temperature, top_p), seed)
    with progress_bars() as report:
        texts = find_texts(data, split=split, progress=report)
        report("opening the model", 0, None)
        opened = open_model(model, dtype=dtype, device=device)
        with StopSignals() as signals:
            done = record_trace(
                opened, texts, out, asked, should_stop=lambda: signals.received is not None, progress=report
            )
    many = "sequence" if done.sequences == 1 else "sequences"
    phases = f" ({done.tokens - done.decoded:,} of prefill, {done.decoded:,} of decode)" if done.decoded else ""
    if done.path is not None:
        click.echo(f"{out}: {done.tokens:,} tokens{phases} in {done.sequences:,} {many}, {done.layers} layers")
    if done.stopped:
        kept = f"{out} holds these" if done.path else f"{out} was not written"
        click.echo(f"stopped after {done.sequences:,} of {done.planned:,} sequences; {kept}", err=True)
        context.exit(128 + (signals.received or 0))


def _worded(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "not told" if value is None else str(value)
