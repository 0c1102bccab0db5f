"""How numbers are written for readers; None, what cannot be said, becomes a dash."""

from __future__ import annotations

DASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def fixed(value: float | None, digits: int = 2) -> str:
    """Return `0.50`."""
    return DASH if value is None else _with_minus(f"{value:.{digits}f}")


def percent(value: float | None, digits: int = 0) -> str:
    """Return `51 %` for 0.51."""
    return DASH if value is None else _with_minus(f"{100 * value:.{digits}f}") + " %"


def signed_percent(value: float | None, digits: int = 1) -> str:
    """Return `+6.3 %` for 0.063; a change that rounds to nothing carries no sign."""
    if value is None:
        return DASH
    text = f"{100 * value:+.{digits}f}"
    return (text[1:] if float(text) == 0 else _with_minus(text)) + " %"


def times(value: float | None) -> str:
    """Return `0.48×`."""
    return DASH if value is None else f"{value:.2f}{TIMES}"


def millions(count: int) -> str:
    """Return `1.84 M`, or the count itself below ten thousand."""
    return f"{count:,}" if count < 10_000 else f"{count / 1e6:.2f} M"


def duration(seconds: float) -> str:
    """Return `150 s`, `7 min 32 s` or `2 h 05 min`."""
    whole = round(seconds)
    if whole < 180:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _with_minus(text: str) -> str:
    if float(text) == 0:
        return text.lstrip("-")
    return text.replace("-", _MINUS)
