"""Checks of settings that several rooms share, worded alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from stickymoe.core.errors import SettingError


def require_at_least(name: str, value: float, minimum: float, way_out: str = "") -> None:
    """Raise `SettingError` unless `value >= minimum` (NaN never is)."""
    if not value >= minimum:
        raise SettingError.broken(name, f">= {minimum}", value, way_out)


def require_one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise `SettingError` that names the nearest allowed word unless `value` is one of them."""
    words = sorted(allowed)
    if value not in words:
        raise SettingError.broken(name, "one of " + ", ".join(words), value, nearest(value, words))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the known word closest to `word`, or the empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""
