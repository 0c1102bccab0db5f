"""`stickymoe data`: fetch or read a corpus, check it, tokenise it, cache it, count it."""

from __future__ import annotations

import click


@click.group()
def data() -> None:
    """Corpora and tokenizers.

    \b
    Example:
      stickymoe data prepare sotu
    """


@data.command()
@click.argument("corpus")
@click.option("--tokenizer", default="auto", show_default=True, help="auto, gpt2, bpe-SIZE, or a folder with one.")
def prepare(corpus: str, tokenizer: str) -> None:
    """Prepare CORPUS: read or fetch, check, tokenise, cache, and print the token counts.

    CORPUS is sotu, wikitext-2-raw, wikitext-2-v1, or the path of a folder or text file.

    \b
    Examples:
      stickymoe data prepare sotu
      stickymoe data prepare ~/texts
      stickymoe data prepare wikitext-2-raw --tokenizer gpt2
    """
    from rich.table import Table

    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.data import describe_corpus, load_corpus

    with progress_bars() as report:
        found = load_corpus(corpus, tokenizer=tokenizer, progress=report)
    table = Table(title=f"{found.name}, vocabulary of {found.vocab_size:,}")
    table.add_column("split")
    table.add_column("documents", justify="right")
    table.add_column("tokens", justify="right")
    for row in describe_corpus(found):
        table.add_row(row["split"], f"{row['documents']:,}", f"{row['tokens']:,}")
    console().print(table)
