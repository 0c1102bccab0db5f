"""A section for every variant at every size: its runs, what each was made with, and the command that makes it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from stickymoe.experiments.formatting import DASH, duration, fixed, percent
from stickymoe.experiments.recipe_file import recipe_text
from stickymoe.experiments.sweep_report.record import RunRecord, SweepResults, ordered
from stickymoe.experiments.sweep_report.summary import MEASURES


@dataclass(frozen=True)
class RunLine:
    """One run of a section.

    Attributes:
        anchor: Where a link to it leads.
        seed: Its seed.
        state: That it is finished, or why not.
        numbers: Label and value of what was measured, none where it is not finished.
        facts: What it was made with.
        command: Makes it again.
        recipe: Its resolved recipe as TOML.
    """

    anchor: str
    seed: int
    state: str
    numbers: list[tuple[str, str]]
    facts: dict[str, str]
    command: str
    recipe: str


@dataclass(frozen=True)
class RunPage:
    """The runs of one variant at one size."""

    anchor: str
    variant: str
    title: str
    runs: list[RunLine]


def anchor_of(size: str, variant: str, seed: int | None = None) -> str:
    """Return the id of a variant's section, or of a run in it."""
    words = "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in f"{size}-{variant}")
    return f"run-{words}" if seed is None else f"run-{words}-{seed}"


def run_pages(sweep: SweepResults) -> list[RunPage]:
    """Return the sections, in the order of sizes and variants; runs that are not finished say so."""
    sizes = list(dict.fromkeys([*sweep.sizes, *(run.size for run in sweep.runs)]))
    pages = []
    for size in sizes:
        for variant in ordered(run.variant for run in sweep.runs if run.size == size):
            runs = sorted((run for run in sweep.runs if (run.size, run.variant) == (size, variant)), key=_seed)
            title = f"{runs[0].label} at {size}"
            pages.append(RunPage(anchor_of(size, variant), variant, title, [_line(sweep, run) for run in runs]))
    return pages


def _seed(run: RunRecord) -> int:
    return run.seed


def _line(sweep: SweepResults, run: RunRecord) -> RunLine:
    state = "finished" if run.is_complete else run.problem or f"{run.steps_done:,} of {run.steps:,} steps"
    hours = {} if run.hours is None else {"Training": f"{run.steps_done:,} steps in {duration(3600 * run.hours)}"}
    return RunLine(
        anchor=anchor_of(run.size, run.variant, run.seed),
        seed=run.seed,
        state=state,
        numbers=_numbers(run),
        facts=hours | run.facts,
        command=f"{sweep.command} --only {shlex.quote(run.name)} --out again",
        recipe=recipe_text(run.recipe),
    )


def _numbers(run: RunRecord) -> list[tuple[str, str]]:
    if run.result is None or not run.is_complete:
        return []
    shown: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("perplexity", "perplexity", lambda value: fixed(value, 1)),
        ("switch_rate", "switch rate", lambda value: fixed(value, 3)),
        ("hit_rate", "hit rate", lambda value: percent(value, 1)),
        ("gate_entropy", "gate entropy", lambda value: fixed(value, 2)),
        ("gate_margin", "margin", lambda value: fixed(value, 3)),
    )
    found = [(label, MEASURES[name](run.result), write) for name, label, write in shown]
    return [(label, DASH if value is None else write(value)) for label, value, write in found]
