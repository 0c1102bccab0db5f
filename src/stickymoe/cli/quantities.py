"""How sizes and capacities are written on the command line: `4GiB`, `25%`, `8:64:8`, `8,16,32`."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import click

_UNITS = {"": 1, "b": 1} | {
    name + ending: base**power
    for power, name in enumerate("kmgt", 1)
    for ending, base in (("", 1024), ("b", 1000), ("ib", 1024))
}
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z%]*)\s*", re.IGNORECASE)
_MOST = 4096
_HOW = "write slots (32), a share (25%), bytes (4GiB), a list (8,16,32) or a range (8:64:8, both ends in it)"


@dataclass(frozen=True)
class Capacity:
    """One size as asked for: exactly one of slots, share and bytes is set."""

    asked: str
    slots: int | None = None
    share: float | None = None
    total_bytes: int | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the argument that `cache.simulate` takes for it."""
        if self.total_bytes is not None:
            return {"capacity_bytes": self.total_bytes}
        return {"capacity": self.slots if self.slots is not None else self.share}


class Bytes(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A number of bytes: `13219200`, `512MiB`, `4GiB`, `4GB`. Without `iB` or `B`, K, M, G and T are powers of 1024."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        if isinstance(value, int):
            return value
        with suppress(ValueError):
            found = _parse(value)
            if found.share is None:
                return int(found.slots if found.total_bytes is None else found.total_bytes)  # type: ignore[arg-type]
        self.fail(f"a size must be in bytes, such as 512MiB or 4GiB, got {value!r}", param, ctx)


class Capacities(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """Capacities in any of their spellings, as a list of `Capacity`."""

    name = "capacity"

    def __init__(self, *, single: bool = False) -> None:
        """Take lists and ranges too, unless `single`."""
        self.single = single

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Capacity]:
        """Return the capacities in the order given."""
        if isinstance(value, list):
            return value
        try:
            found = _capacities(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self.single and len(found) != 1:
            self.fail(f"a budget must be one size, got {value!r}; write 32, 25% or 4GiB", param, ctx)
        return found


def bytes_in_words(count: float) -> str:
    """Return `2.93 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def _capacities(text: str) -> list[Capacity]:
    found: list[Capacity] = []
    for part in text.split(","):
        if ":" not in part:
            found.append(_parse(part))
            continue
        ends = part.split(":")
        if len(ends) not in (2, 3) or not all(end.strip().isdigit() for end in ends):
            raise ValueError(f"a range must be START:STOP:STEP in whole slots, got {part!r}; {_HOW}")
        start, stop, step = (int(end) for end in (*ends, "1")[:3])
        if step < 1 or stop < start:
            raise ValueError(f"a range must rise by a step >= 1, got {part!r}")
        if (stop - start) // step >= _MOST:
            raise ValueError(f"a range must have at most {_MOST} capacities, got {(stop - start) // step + 1}")
        found += [Capacity(str(slots), slots=slots) for slots in range(start, stop + 1, step)]
    return found


def _parse(text: str) -> Capacity:
    match = _NUMBER.fullmatch(text)
    if not match or (match[2] != "%" and match[2].lower() not in _UNITS):
        raise ValueError(f"a capacity must be a size, got {text!r}; {_HOW}")
    asked, number, unit = text.strip(), float(match[1]), match[2].lower()
    if unit == "%":
        if not 0 < number <= 100:
            raise ValueError(f"a share must be above 0% and at most 100%, got {text!r}")
        return Capacity(asked, share=number / 100)
    if unit:
        return Capacity(asked, total_bytes=int(number * _UNITS[unit]))
    if "." in match[1]:
        raise ValueError(f"slots must be whole, got {text!r}; write a share as {100 * number:g}%")
    return Capacity(asked, slots=int(match[1]))
