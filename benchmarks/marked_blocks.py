"""Blocks of a page that are made from results: what stands between `<!-- name:begin -->` and `<!-- name:end -->`."""

from __future__ import annotations

from collections.abc import Mapping


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """Return the page's text with every block made anew."""
    for name, block in blocks.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{block}\n{end}{rest.split(end)[1]}"
    return text
