"""Runs as SLURM jobs, handed in by submitit; or, with `--cluster cluster=local`, as submitit's own local jobs.

Jobs go on when the sweep ends, however it ends, unless Ctrl-C takes them back. What was handed in is remembered in the
run's folder, and the next sweep follows such a job instead of handing in a second.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.core.files import write_json
from stickymoe.experiments.launchers.launcher import OUTPUT_FILE, STOP_FILE, Launcher, Started
from stickymoe.experiments.launchers.local import carried_environment, run_to_end

JOB_FILE = "slurm.json"
JOBS_AT_A_TIME = 64
DEFAULT_MINUTES = 24 * 60


class SlurmRun(Started):
    """A run that is a submitit job."""

    def __init__(self, job: Any, folder: Path) -> None:
        """Follow a job."""
        self._job, self._folder = job, folder
        self._code: int | None = None

    def has_begun(self) -> bool:
        """Tell whether a node has opened the output."""
        return (self._folder / OUTPUT_FILE).exists()

    def poll(self) -> int | None:
        """Return the exit code; that of SIGKILL where the job ended without one."""
        if self._code is None and self._job.done():
            try:
                self._code = int(self._job.result())
            except Exception:  # submitit passes on whatever ended the job
                self._code = -signal.SIGKILL
            (self._folder / JOB_FILE).unlink(missing_ok=True)
        return self._code

    def interrupt(self) -> None:
        """Ask the run to save and end, or take it back if it waits."""
        if self.poll() is None:
            (self._folder / STOP_FILE).touch()
            if not self.has_begun():
                self._job.cancel(check=False)

    def kill(self) -> None:
        """Cancel the job; SLURM ends by force what does not end by itself."""
        if self.poll() is None:
            self._job.cancel(check=False)


class SlurmLauncher(Launcher):
    """Starts runs as jobs of a SLURM cluster."""

    def __init__(self, executor: Any) -> None:
        """Use a submitit executor."""
        self._executor = executor

    @classmethod
    def open(cls, folder: Path, options: Mapping[str, str]) -> SlurmLauncher:
        """Prepare an executor: `options` are those of submitit's `update_parameters`, and `cluster` chooses it."""
        try:
            import submitit
        except ImportError:
            message = "--launcher slurm needs submitit, which is not installed; pip install 'stickymoe[cluster]'"
            raise SettingError(message) from None
        parameters = {name: _value(value) for name, value in options.items() if name != "cluster"}
        try:
            executor = submitit.AutoExecutor(folder.resolve() / "slurm", cluster=options.get("cluster", "slurm"))
            executor.update_parameters(**{"timeout_min": DEFAULT_MINUTES, "name": "stickymoe"} | parameters)
        except Exception as error:  # submitit raises RuntimeError, ValueError, NameError and AssertionError alike
            reason = " ".join(str(error).split())
            raise SettingError(f"SLURM cannot be used: {reason:.300}; check --cluster") from None
        return cls(executor)

    def slots(self) -> int:
        """Return a number of jobs that a queue can be asked to hold."""
        return JOBS_AT_A_TIME

    def start(self, folder: Path, command: Sequence[str], parallel: int) -> SlurmRun:
        """Hand a run in, or follow the one that an earlier sweep handed in; see `Launcher`."""
        folder = folder.resolve()
        job = self._handed_in(folder)
        if job is None:
            folder.mkdir(parents=True, exist_ok=True)
            for name in (OUTPUT_FILE, STOP_FILE):
                (folder / name).unlink(missing_ok=True)  # the node makes the first when it begins
            job = self._executor.submit(_run_there, str(folder), list(command), carried_environment(), str(Path.cwd()))
            write_json(folder / JOB_FILE, {"job": job.job_id, "command": list(command)})
        return SlurmRun(job, folder)

    def follows(self, folder: Path) -> bool:
        """Tell whether a job handed in earlier still waits or runs."""
        return self._handed_in(folder.resolve()) is not None

    def close(self) -> None:
        """Hold nothing; jobs go on."""

    def _handed_in(self, folder: Path) -> Any:
        """Return the job of an earlier sweep that has not ended, None if there is none."""
        import submitit

        try:
            number = str(json.loads((folder / JOB_FILE).read_text(encoding="utf-8"))["job"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if self._executor.cluster != "slurm":
            return None
        job: Any = submitit.SlurmJob(self._executor.folder, number)
        return None if job.done() else job


def _run_there(folder: str, command: list[str], environment: dict[str, str], place: str) -> int:
    os.chdir(place)
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    threads = {"OMP_NUM_THREADS": cores} if cores else {}
    return run_to_end(Path(folder), command, environment | threads)


def _value(text: str) -> Any:
    """Read a number as a number; submitit checks the types."""
    try:
        return int(text)
    except ValueError:
        return text
