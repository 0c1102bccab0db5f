"""A run of a sweep beside what there is of it and what has to be done, and how long that will take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stickymoe.experiments.runner import Job
from stickymoe.experiments.sweeps.plan import PlannedRun
from stickymoe.experiments.sweeps.row import ResultRow


@dataclass
class Entry:
    """A run of a sweep.

    Attributes:
        run: The run.
        folder: Where it lives.
        row: Its result, if there is one; it need not stand.
        job: What has to be done for it; None where its result stands.
    """

    run: PlannedRun
    folder: Path
    row: ResultRow | None = None
    job: Job | None = field(default=None, repr=False)

    @property
    def state(self) -> str:
        """Return what has become of it: `stands`, or the job's state."""
        return self.job.state if self.job else "stands"

    @property
    def is_done(self) -> bool:
        """Whether its result is there."""
        return self.state in ("stands", "finished")

    @property
    def is_lost(self) -> bool:
        """Whether it ended without a result."""
        return self.state in ("failed", "cut short", "skipped")


def seconds_left(entries: Sequence[Entry], parallel: int) -> float | None:
    """Estimate how long a sweep still takes, from the pace of runs of the same size, or of any where there is none.

    Returns:
        At least the longest run, at least all work spread evenly over `parallel`; None before any step was made.
    """
    paces = list(_paces(entries))
    if not paces:
        return None
    left = []
    for entry in entries:
        if entry.job and not entry.is_done and not entry.is_lost:
            own = [seconds for size, seconds in paces if size == entry.run.size] or [seconds for _, seconds in paces]
            left.append((entry.job.steps - entry.job.step()) * sum(own) / len(own))
    return max(max(left, default=0.0), sum(left) / max(1, min(parallel, len(left))))


def _paces(entries: Iterable[Entry]) -> Iterable[tuple[str, float]]:
    """Yield the size and the seconds a step of every run that has made some."""
    for entry in entries:
        if entry.job:
            step, seconds = entry.job.pace()
        elif entry.row:
            step, seconds = entry.row.steps_done, entry.row.hours * 3600
        if step > 0 and seconds > 0:
            yield entry.run.size, seconds / step
