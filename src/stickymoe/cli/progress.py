"""Progress bars with the time left, for work that says how far it has come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

COUNTS = 36  # characters that `1000/10000 0:00:00 left 0:00:00` takes, with the gaps between columns

Report = Callable[[str, int, "int | None"], None]


def console() -> Console:
    """Return the console of results, as wide as the terminal."""
    from rich.console import Console

    return Console(soft_wrap=False)


@contextmanager
def progress_bars(err: Console | None = None) -> Iterator[Report]:
    """Yield `report(description, done, total)`: one bar for each description, drawn on standard error.

    What follows ` ·` in a description may change, the bar stays the same. Without a terminal each new piece of work is
    one printed line.

    Args:
        err: Where to draw; standard error if not given.
    """
    from rich import progress as bars
    from rich.console import Console
    from rich.table import Column

    err = err or Console(stderr=True)
    if not err.is_terminal:
        yield _plain()
        return
    bar = 20 if err.width >= 80 else 6
    room = max(8, err.width - bar - COUNTS)  # a description gives way, counts and times do not
    column = Column(no_wrap=True, overflow="ellipsis", max_width=room)
    columns = (
        bars.TextColumn("{task.description}", markup=False, table_column=column),
        bars.BarColumn(bar_width=bar),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=err, transient=True) as drawn:
        tasks: dict[str, bars.TaskID] = {}

        def report(description: str, done: int, total: int | None) -> None:
            key = _key(description)
            if key not in tasks:
                tasks[key] = drawn.add_task(description, total=total)
            drawn.update(tasks[key], description=description, completed=done, total=total)

        yield report


def _plain() -> Report:
    seen: set[str] = set()

    def report(description: str, done: int, total: int | None) -> None:
        if (key := _key(description)) not in seen:
            seen.add(key)
            print(key, file=sys.stderr)

    return report


def _key(description: str) -> str:
    return description.split(" ·")[0]
