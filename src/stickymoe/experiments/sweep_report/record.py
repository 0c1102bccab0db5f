"""What the report knows of a sweep: its runs, finished or not, and which of them compare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stickymoe.experiments.comparison import require_same_tokens
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.ribbon import RoutedPassage
from stickymoe.experiments.variants import VARIANTS

DENSE = "dense"


@dataclass(frozen=True)
class RunRecord:
    """One run of a sweep.

    Attributes:
        size: Name of its size.
        seed: Its seed.
        variant: Name of its variant.
        family: The variant's family.
        label: The variant's name for readers.
        steps: Steps the recipe asks for.
        steps_done: Steps that were trained.
        hours: Training time.
        result: What was measured; None for a run that did not get there.
        recipe: The resolved recipe, by table.
        passage: How it routed the sweep's passage.
        problem: Why it is not finished; empty if it is.
        facts: What else is known, by label: hardware, versions, keys.
    """

    size: str
    seed: int
    variant: str
    family: str
    label: str
    steps: int
    steps_done: int
    hours: float | None = None
    result: RunResult | None = None
    recipe: dict[str, Any] = field(default_factory=dict, repr=False)
    passage: RoutedPassage | None = field(default=None, repr=False)
    problem: str = ""
    facts: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """Return `SIZE/SEED/VARIANT`."""
        return f"{self.size}/{self.seed}/{self.variant}"

    @property
    def is_complete(self) -> bool:
        """Whether it trained all of its steps and was measured: only then is it shown beside others."""
        return self.result is not None and self.steps_done >= self.steps and not self.problem


@dataclass(frozen=True)
class SweepResults:
    """All runs of a sweep.

    Attributes:
        name: Name of the sweep.
        title: Heading of the report.
        note: What a reader must know wherever a number is shown; may be empty.
        runs: Its runs in any order; one a (size, seed, variant).
        planned: Names `SIZE/SEED/VARIANT` of all runs the sweep consists of.
        command: Command line that makes the rows, to which `--only NAME` is added for one run.
    """

    name: str
    title: str
    note: str
    runs: tuple[RunRecord, ...]
    planned: tuple[str, ...]
    command: str

    @cached_property
    def complete(self) -> list[RunRecord]:
        """The finished runs."""
        return [run for run in self.runs if run.is_complete]

    @cached_property
    def unfinished(self) -> list[RunRecord]:
        """Runs that were begun and are not finished."""
        return [run for run in self.runs if not run.is_complete]

    @cached_property
    def missing(self) -> list[str]:
        """Names of the planned runs that have no row."""
        known = {run.name for run in self.runs}
        return [name for name in self.planned if name not in known]

    @cached_property
    def planned_variants(self) -> dict[str, set[str]]:
        """The variants that the sweep consists of, by size."""
        found: dict[str, set[str]] = {}
        for name in self.planned:
            size, _, variant = name.split("/", 2)
            found.setdefault(size, set()).add(variant)
        return found

    @cached_property
    def sizes(self) -> list[str]:
        """Sizes with a finished run, the smallest model first."""
        found: dict[str, int] = {}
        for run in self.complete:
            assert run.result is not None
            found[run.size] = max(found.get(run.size, 0), run.result.read.parameters.total)
        return sorted(found, key=lambda size: found[size])

    def of(self, size: str, variant: str) -> dict[int, RunResult]:
        """Return a variant's finished results at a size, by seed."""
        found = [run for run in self.complete if run.size == size and run.variant == variant]
        return {run.seed: run.result for run in sorted(found, key=lambda run: run.seed) if run.result is not None}

    def variants(self, size: str) -> list[str]:
        """Return the variants with a finished run at a size, in the registry's order, unknown ones last."""
        return ordered(run.variant for run in self.complete if run.size == size)

    def run(self, size: str, variant: str) -> RunRecord:
        """Return one of the finished runs of a variant at a size, for what is the same in all of them."""
        return next(run for run in self.complete if (run.size, run.variant) == (size, variant))

    def check(self) -> None:
        """Refuse runs that do not compare.

        Raises:
            DataError: Two runs of a size were measured on other tokens.
        """
        for size in self.sizes:
            require_same_tokens([run.result for run in self.complete if run.size == size and run.result is not None])


ORDER = {name: number for number, name in enumerate(VARIANTS)}


def ordered(names: Iterable[str]) -> list[str]:
    """Return variants once each in the registry's order, unknown ones last."""
    return sorted(set(names), key=lambda name: (ORDER.get(name, len(ORDER)), name))
