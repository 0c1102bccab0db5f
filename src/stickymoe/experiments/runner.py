"""Several runs at once, each a process of its own, so that one that dies takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from stickymoe.core.errors import TrainingError
from stickymoe.experiments.launchers.launcher import FAREWELL_SECONDS, OUTPUT_FILE, Launcher, Started
from stickymoe.experiments.launchers.local import LocalLauncher
from stickymoe.experiments.results import LOG_FILE

_POLL_SECONDS = 0.25
_FAREWELL_SECONDS = FAREWELL_SECONDS


@dataclass(eq=False)
class Job:
    """One command with a folder that its output and its training log go to.

    Attributes:
        label: Name in messages.
        folder: Where the run lives.
        command: Words after the python interpreter; the first is `-m` or `-c`.
        steps: Optimizer steps it will take, for progress.
        after: A job that must have finished before this one begins; where that fails this one is skipped.
        limit_seconds: It is asked to save and end after so long, and killed if it does not; None for no limit.
        state: What has become of it.
        reason: Why it did not finish.
    """

    label: str
    folder: Path
    command: Sequence[str]
    steps: int
    after: Job | None = None
    limit_seconds: float | None = None
    state: Literal["waiting", "running", "finished", "failed", "cut short", "skipped"] = "waiting"
    reason: str = ""
    process: Started | None = field(default=None, repr=False)
    begun: float | None = field(default=None, repr=False)
    asked_to_end: float | None = field(default=None, repr=False)

    def step(self) -> int:
        """Return the last step in the training log, 0 before the first row."""
        return self.pace()[0]

    def pace(self) -> tuple[int, float]:
        """Return the last step in the training log and the seconds that training took until there."""
        row = _last_row(self.folder / LOG_FILE)
        return int(row["step"]), float(row.get("seconds", 0.0))


JobProgress = Callable[[Sequence[Job], Sequence[Job], Sequence[Job]], None]
"""Called every moment with the waiting, the running and the finished jobs."""


def run_jobs(
    jobs: Sequence[Job],
    parallel: int,
    progress: JobProgress | None = None,
    *,
    launcher: Launcher | None = None,
    keep_going: bool = False,
    ended: Callable[[Job], None] | None = None,
) -> None:
    """Run `jobs`, at most `parallel` at a time, in their order as far as they need not wait for each other.

    Ctrl-C, or the end of this process by SIGTERM or a closed terminal, reaches every running job, which saves and ends;
    then KeyboardInterrupt goes on. If this process is killed outright, local jobs save and end all the same.

    Args:
        jobs: What to run; their states tell what became of them.
        parallel: How many at a time.
        progress: Told of the work.
        launcher: Where they run; on this machine, each with an equal share of the cores, if not given.
        keep_going: Whether the others go on when one has failed. Without it those already running finish, no further
            one begins, and the failure is raised.
        ended: Called with each job that has ended, at once; it may still change the job's state.

    Raises:
        TrainingError: A job ended badly and `keep_going` is off; its last line of output is in the message.
    """
    launcher = launcher or LocalLauncher()
    with _ends_like_ctrl_c():
        try:
            while any(job.state == "running" for job in jobs) or _ready(jobs, keep_going):
                _begin(jobs, parallel, launcher, keep_going)
                time.sleep(_POLL_SECONDS)
                for job in [job for job in jobs if job.state == "running"]:
                    if _has_ended(job) and ended:
                        ended(job)
                _skip(jobs)
                if progress:
                    progress(*([job for job in jobs if job.state == state] for state in _SHOWN))
        except BaseException:
            _interrupt([job.process for job in jobs if job.state == "running" and job.process])
            raise
    failed = [job for job in jobs if job.state in ("failed", "cut short")]
    if failed and not keep_going:
        raise TrainingError("; ".join(f"{job.label} {job.reason}" for job in failed))


_SHOWN = ("waiting", "running", "finished")


def _ready(jobs: Sequence[Job], keep_going: bool) -> list[Job]:
    if not keep_going and any(job.state in ("failed", "cut short", "skipped") for job in jobs):
        return []
    return [job for job in jobs if job.state == "waiting" and (job.after is None or job.after.state == "finished")]


def _begin(jobs: Sequence[Job], parallel: int, launcher: Launcher, keep_going: bool) -> None:
    for job in _ready(jobs, keep_going):
        if sum(other.state == "running" for other in jobs) >= parallel:
            return
        job.process = launcher.start(job.folder, job.command, parallel)
        job.state = "running"


def _has_ended(job: Job) -> bool:
    """Note whether a running job has ended, and how; see to its time limit."""
    if job.process is None:
        return False
    code = job.process.poll()
    if code is not None:
        _note_end(job, code)
        return True
    now = time.monotonic()
    if job.begun is None and job.process.has_begun():
        job.begun = now
    if job.asked_to_end is not None:
        if now - job.asked_to_end > _FAREWELL_SECONDS:
            job.process.kill()
    elif job.limit_seconds is not None and job.begun is not None and now - job.begun > job.limit_seconds:
        job.asked_to_end = now
        job.process.interrupt()
    return False


def _note_end(job: Job, code: int) -> None:
    if code == 0:
        job.state = "finished"
    elif job.asked_to_end is not None and job.limit_seconds is not None:
        job.state = "cut short"
        how = "saved and ended" if code > 0 else "did not answer and was killed"
        job.reason = f"reached its time limit of {job.limit_seconds / 60:g} minutes at step {job.step()}, {how}"
    else:
        job.state = "failed"
        job.reason = _obituary(job, code)


def _skip(jobs: Sequence[Job]) -> None:
    """Give up the jobs that wait for one that will not finish."""
    for job in jobs:
        if job.state == "waiting" and job.after and job.after.state in ("failed", "cut short", "skipped"):
            job.state = "skipped"
            job.reason = f"was not begun: it starts from {job.after.label}, which has not finished"


@contextlib.contextmanager
def _ends_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, so that no job is left behind, working for nobody."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(processes: Sequence[Started]) -> None:
    """Ask the processes to save and end; whoever asks for a second time, or waits in vain, has them killed."""
    for process in processes:
        process.interrupt()
    end = time.monotonic() + _FAREWELL_SECONDS
    try:
        while time.monotonic() < end and any(process.poll() is None for process in processes):
            time.sleep(min(_POLL_SECONDS, 0.05))
    finally:
        for process in processes:
            process.kill()


def _obituary(job: Job, code: int) -> str:
    path = job.folder / OUTPUT_FILE
    said = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else "no output"
    ending = f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    return f"{ending}: {last} (all it said is in {path})"


def _last_row(path: Path) -> dict[str, Any]:
    """Read the last whole row without reading the whole file; step 0 before the first."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            lines = file.read().split(b"\n")
    except OSError:
        lines = []
    for line in reversed(lines[:-1]):  # what follows the last newline is not a whole row
        with contextlib.suppress(ValueError, KeyError, TypeError):
            row = dict(json.loads(line))
            return row | {"step": int(row["step"])}
    return {"step": 0}
