"""How long work tells its caller how far it has come."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[str, int, int | None], None]
"""Called as `progress(description, done, total)`; `total` is None where the amount of work is not known."""


def silent(description: str, done: int, total: int | None) -> None:
    """Tell nobody."""
