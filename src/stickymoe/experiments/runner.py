"""Several runs at once, each a process of its own, so that one that dies takes no other with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from stickymoe.core.errors import TrainingError
from stickymoe.experiments.environment import usable_cores
from stickymoe.experiments.results import LOG_FILE

OUTPUT_FILE = "output.txt"
_POLL_SECONDS = 0.25
_FAREWELL_SECONDS = 60.0


@dataclass
class Job:
    """One command with a folder that its output and its training log go to.

    Attributes:
        label: Name in messages.
        folder: Where the run lives.
        command: Words after the python interpreter.
        steps: Optimizer steps it will take, for progress.
    """

    label: str
    folder: Path
    command: Sequence[str]
    steps: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def step(self) -> int:
        """Return the last step in the training log, 0 before the first row."""
        return _last_step(self.folder / LOG_FILE)


JobProgress = Callable[[Sequence[Job], Sequence[Job], Sequence[Job]], None]
"""Called every moment with the waiting, the running and the finished jobs."""


def run_jobs(jobs: Sequence[Job], parallel: int, progress: JobProgress | None = None) -> None:
    """Run `jobs`, at most `parallel` at a time, each with an equal share of the cores.

    Ctrl-C, or the end of this process by SIGTERM or a closed terminal, reaches every running job, which saves and ends;
    then KeyboardInterrupt goes on. When one fails, those already running finish, and no further one begins.

    Raises:
        TrainingError: A job ended badly; its last line of output is in the message.
    """
    threads = max(1, usable_cores() // parallel)
    waiting, running, finished, failed = list(jobs), list[Job](), list[Job](), list[Job]()
    with _ends_like_ctrl_c():
        try:
            while running or (waiting and not failed):
                while waiting and len(running) < parallel and not failed:
                    running.append(waiting[0])
                    _start(waiting.pop(0), threads)
                time.sleep(_POLL_SECONDS)
                for job in [job for job in running if job.process and job.process.poll() is not None]:
                    running.remove(job)
                    (failed if job.process and job.process.returncode else finished).append(job)
                if progress:
                    progress(waiting, running, finished)
        except BaseException:
            _interrupt([job.process for job in running if job.process])
            raise
    if failed:
        raise TrainingError("; ".join(_obituary(job) for job in failed))


def _start(job: Job, threads: int) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    with (job.folder / OUTPUT_FILE).open("wb") as output:
        # Its own session: a Ctrl-C in the terminal reaches jobs through us alone, once
        job.process = subprocess.Popen(
            [sys.executable, *job.command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


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


def _interrupt(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask the processes to save and end; whoever asks for a second time, or waits in vain, has them killed."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    end = time.monotonic() + _FAREWELL_SECONDS
    try:
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
    finally:
        for process in processes:
            process.kill()  # does nothing to one that has ended
            process.wait()


def _obituary(job: Job) -> str:
    path = job.folder / OUTPUT_FILE
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("error: ") if lines else "no output"
    return f"{job.label} {_ending(job)}: {last} (all it said is in {path})"


def _ending(job: Job) -> str:
    code = job.process.returncode if job.process else None
    if code is None or code >= 0:
        return f"ended with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def _last_step(path: Path) -> int:
    """Read the `step` of the last whole row without reading the whole file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 65536))
            lines = file.read().split(b"\n")
    except OSError:
        return 0
    for line in reversed(lines[:-1]):  # what follows the last newline is not a whole row
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return int(json.loads(line)["step"])
    return 0
