"""How the numbers of a diagnosis are worded, in the terminal and on the page alike."""

from __future__ import annotations

from stickymoe.experiments.diagnosis.budget import Budget
from stickymoe.experiments.formatting import DASH, fixed, percent


def points(change: float) -> str:
    """Return `+1.2 points` for a hit rate 0.012 higher."""
    text = f"{100 * change:+.1f}"
    return (text[1:] if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")) + " points"


def size(count: float | None) -> str:
    """Return `2.93 GiB`, a dash where no size is known."""
    if count is None:
        return DASH
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1000 or (unit == "bytes" and count < 1024):
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def slots(budget: Budget, count: int) -> str:
    """Return `32 slots a layer (25 %, 3.8 GiB)`."""
    where = "a layer" if budget.scope == "layer" else "in one pool"
    share = percent(min(1.0, count / budget.experts))
    total = budget.bytes_of(count)
    inside = share if total is None else f"{share}, {size(total)}"
    return f"{count:,} {'slot' if count == 1 else 'slots'} {where} ({inside})"


def asked(budget: Budget) -> str:
    """Return `32 slots a layer (25 %, 3.8 GiB)` and how it came about, where that says more."""
    told = slots(budget, budget.slots)
    if budget.asked_bytes is not None:
        return f"{told} of {budget.asked}"
    return told if budget.asked in ("", str(budget.slots)) else f"{told}; {budget.asked}"


def loads(per_token: float, bytes_per_token: float | None) -> str:
    """Return `61.8 loads (781 MiB) a token`."""
    inside = "" if bytes_per_token is None else f" ({size(bytes_per_token)})"
    return f"{fixed(per_token, 1)} loads{inside} a token"
