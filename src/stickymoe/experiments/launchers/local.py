"""Runs as processes of this machine, each with its share of the cores, none of which outlives its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stickymoe.core.errors import SettingError
from stickymoe.core.files import storage_errors
from stickymoe.experiments.environment import usable_cores
from stickymoe.experiments.launchers.launcher import FAREWELL_SECONDS, OUTPUT_FILE, STOP_FILE, Launcher, Started

_LEASH = ("-m", "stickymoe.experiments.launchers.leash")
_NOTICE_SECONDS = 0.25


class LocalProcess(Started):
    """One command, with its output in `folder/output.txt`, on a leash: it ends when this process does, however."""

    def __init__(self, folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; see `Launcher.start`."""
        ours = {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **environment}
        path = folder / OUTPUT_FILE
        theirs, self._leash = os.pipe()
        try:
            with storage_errors(path):
                folder.mkdir(parents=True, exist_ok=True)
                output = path.open("wb")
            with output:
                # Its own session: a Ctrl-C in the terminal reaches runs through us alone, once
                self._process = subprocess.Popen(
                    [sys.executable, *_LEASH, str(theirs), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ours,
                    start_new_session=True,
                    pass_fds=(theirs,),
                )
        except BaseException:
            os.close(self._leash)
            raise
        finally:
            os.close(theirs)

    @property
    def returncode(self) -> int | None:
        """The exit code, as `poll` found it last."""
        return self._process.returncode

    def has_begun(self) -> bool:
        """Tell that it has."""
        return True

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        code = self._process.poll()
        if code is not None and self._leash >= 0:
            os.close(self._leash)
            self._leash = -1
        return code

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self.poll()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end, at most so many seconds, and return the exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.poll()


class LocalLauncher(Launcher):
    """Starts runs on this machine; several share its cores and take turns on its GPUs."""

    def __init__(self) -> None:
        """Count the GPUs when the first run starts, not before."""
        self._started = 0

    @classmethod
    def open(cls, folder: Path, options: Mapping[str, str]) -> LocalLauncher:
        """Return a launcher; see `Launcher`."""
        if options:
            raise SettingError.broken("--cluster", "left out with --launcher local", next(iter(options)))
        return cls()

    def slots(self) -> int:
        """Return one run a core."""
        return usable_cores()

    def start(self, folder: Path, command: Sequence[str], parallel: int) -> LocalProcess:
        """Start a run; see `Launcher`."""
        environment = {"OMP_NUM_THREADS": str(max(1, usable_cores() // parallel))}
        gpus = _visible_gpus()
        if len(gpus) > 1:
            environment["CUDA_VISIBLE_DEVICES"] = gpus[self._started % len(gpus)]
        self._started += 1
        return LocalProcess(folder, command, environment)

    def close(self) -> None:
        """Hold nothing."""


def run_to_end(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command where a cluster has put us, and return its exit code.

    The run is asked to save and end when a file `STOP_FILE` appears in its folder, or when Ctrl-C comes.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
    process = LocalProcess(folder, command, environment)
    try:
        while process.wait(_NOTICE_SECONDS) is None and not (folder / STOP_FILE).exists():
            pass
    except KeyboardInterrupt:
        pass
    try:
        if process.poll() is None:
            process.interrupt()
            process.wait(FAREWELL_SECONDS)
    finally:
        process.kill()
    return -signal.SIGKILL if process.returncode is None else process.returncode


def carried_environment() -> dict[str, str]:
    """Return the variables that decide what a run finds, to be told to other machines."""
    return {name: value for name, value in os.environ.items() if name.startswith(("STICKYMOE_", "HF_"))}


def _visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, by the names that `CUDA_VISIBLE_DEVICES` takes."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
