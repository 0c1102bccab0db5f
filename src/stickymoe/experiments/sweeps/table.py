"""A sweep on the terminal: the table that lives while it runs, the plan of a dry run, and what is told at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from stickymoe.experiments.sweeps.entry import Entry, seconds_left

_ORDER = ("running", "failed", "cut short", "skipped", "finished", "stands", "waiting")
_COLOURS = {"running": "cyan", "failed": "red", "cut short": "yellow", "skipped": "yellow", "finished": "green"}
_BAR = 16


def live_table(entries: Sequence[Entry], parallel: int, lines: int) -> Group:
    """Return the state of a running sweep in at most `lines` lines: what runs, what went wrong, then the rest."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "state", "", "step"):
        table.add_column(column, no_wrap=True, justify="right" if column == "step" else "left")
    shown = sorted(entries, key=lambda entry: _ORDER.index(entry.state))
    room = max(1, lines - 3)
    for entry in shown[:room]:
        table.add_row(*_cells(entry))
    if len(shown) > room:
        table.add_row(Text(f"and {len(shown) - room} more", style="dim"), "", "", "")
    return Group(table, Text(summary(entries, parallel)))


def plan_table(entries: Sequence[Entry]) -> Table:
    """Return what a sweep would do: each run, its text, its steps, and whether it stands."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "corpus", "steps", ""):
        table.add_column(column, overflow="fold", justify="right" if column == "steps" else "left")
    for entry in entries:
        data, training = entry.run.recipe.data, entry.run.recipe.training
        table.add_row(entry.run.name, Path(data.corpus).name, str(training.steps), _intent(entry))
    return table


def summary(entries: Sequence[Entry], parallel: int) -> str:
    """Return one line: how many runs are where, and the time left."""
    counts = Counter(entry.state for entry in entries)
    done = counts.pop("stands", 0) + counts.pop("finished", 0)
    others = [f"{counts[state]} {state}" for state in _ORDER if counts[state]]
    left = seconds_left(entries, parallel)
    unfinished = counts["running"] + counts["waiting"]
    time = [f"about {duration(left)} left"] if unfinished and left is not None else []
    return ", ".join([f"{done} of {len(entries)} runs done", *others, *time])


def duration(seconds: float) -> str:
    """Return a length of time with two units: `3 h 20 min`, `5 min`, `40 s`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _cells(entry: Entry) -> tuple[Text, Text, Text, Text]:
    steps = entry.run.recipe.training.steps
    done = steps if entry.is_done or entry.job is None else min(steps, entry.job.step())
    filled = round(_BAR * done / steps)
    state = "evaluating" if entry.state == "running" and done >= steps else entry.state
    return (
        Text(entry.run.name),
        Text(state, style=_COLOURS.get(entry.state, "")),
        Text("━" * filled, style="cyan") + Text("━" * (_BAR - filled), style="dim"),
        Text(f"{done}/{steps}"),
    )


def _intent(entry: Entry) -> str:
    if entry.job is None:
        return "stands"
    step = entry.job.step()
    said = f"goes on from step {step}" if step else "to do"
    return f"{said}, after {entry.run.start.variant.name}" if entry.job.after and entry.run.start else said
