"""Options that say how a replay counts; `simulate` and `diagnose` share them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

_CHOICES = {
    "scope": (("layer", "model"), "One cache a layer, or one pool for the model."),
    "accesses": (("topk", "top1"), "All experts of a token, or the first alone."),
    "replay": (("atomic", "sequential"), "A token's experts together, or one after the other."),
    "prefill": (("token", "pass"), "An event of prefill: a token, or a whole forward pass."),
    "count": (("assignments", "unique"), "An expert wanted twice in one event: two lookups, or one."),
    "reset": (("sequence", "never"), "Cold cache at each sequence, or one cache throughout."),
    "admission": (
        ("always", "whole", "bypass"),
        "Every miss, an event whole or not at all, or a miss may leave at once.",
    ),
}


def semantics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as `semantics`, a dictionary for `cache.simulate`."""

    @functools.wraps(command)
    def counts(**given: Any) -> Any:
        return command(semantics={name: given.pop(name) for name in (*_CHOICES, "batch")}, **given)

    text = "Sequences that run together, their experts of a step united."
    counts = click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help=text)(counts)
    for name, (values, text) in reversed(_CHOICES.items()):
        option = click.option(f"--{name}", type=click.Choice(values), default=values[0], show_default=True, help=text)
        counts = option(counts)
    return counts
