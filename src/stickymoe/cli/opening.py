"""Options that every command which opens a model takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def opening_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the type and the place of a model's weights."""
    device = click.option("--device", metavar="NAME", help="cpu, cuda or cuda:1; the first GPU if there is one.")
    types = click.Choice(["auto", "float32", "bfloat16", "float16"])
    dtype = click.option(
        "--dtype", type=types, default="auto", show_default=True, help="Of the weights; auto: as saved."
    )
    return dtype(device(command))
