"""Runs as tasks of a Ray cluster, local or joined by address, whose machines share this one's file system."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.experiments.launchers.launcher import OUTPUT_FILE, STOP_FILE, Launcher, Started
from stickymoe.experiments.launchers.local import carried_environment, run_to_end

OPTIONS = {"address": str, "num_cpus": int, "num_gpus": int, "namespace": str}


class RayRun(Started):
    """A run that is a Ray task."""

    def __init__(self, ray: Any, reference: Any, folder: Path) -> None:
        """Follow the task behind `reference`."""
        self._ray, self._reference, self._folder = ray, reference, folder
        self._code: int | None = None

    def has_begun(self) -> bool:
        """Tell whether a worker has opened the output."""
        return (self._folder / OUTPUT_FILE).exists()

    def poll(self) -> int | None:
        """Return the exit code; that of SIGKILL where the worker died or the task was taken back."""
        if self._code is None and self._ray.wait([self._reference], timeout=0)[0]:
            try:
                self._code = int(self._ray.get(self._reference))
            except self._ray.exceptions.RayError:
                self._code = -signal.SIGKILL
        return self._code

    def interrupt(self) -> None:
        """Ask the run to save and end, or take it back if it waits."""
        if self.poll() is None:
            (self._folder / STOP_FILE).touch()
            if not self.has_begun():
                self._ray.cancel(self._reference, force=False)

    def kill(self) -> None:
        """End the worker; the run ends with it."""
        if self.poll() is None:
            self._ray.cancel(self._reference, force=True)


class RayLauncher(Launcher):
    """Starts runs on a Ray cluster."""

    def __init__(self, ray: Any) -> None:
        """Use a cluster that was joined."""
        self._ray = ray

    @classmethod
    def open(cls, folder: Path, options: Mapping[str, str]) -> RayLauncher:
        """Join the cluster at `address`, or that of `RAY_ADDRESS`; else start one on this machine."""
        try:
            import ray
        except ImportError:
            message = "--launcher ray needs Ray, which is not installed; pip install 'stickymoe[cluster]'"
            raise SettingError(message) from None
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **_typed(options))
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise SettingError(f"Ray cannot be used: {reason:.200}; check --cluster") from None
        return cls(ray)

    def slots(self) -> int:
        """Return one run a GPU, or a core where the cluster has no GPUs."""
        resources = self._ray.cluster_resources()
        return max(1, int(resources.get("GPU", 0) or resources.get("CPU", 1)))

    def start(self, folder: Path, command: Sequence[str], parallel: int) -> RayRun:
        """Hand a run to the cluster; see `Launcher`."""
        resources = self._ray.cluster_resources()
        threads = max(1, int(resources.get("CPU", 1)) // parallel)
        gpus = min(1.0, resources.get("GPU", 0) / parallel)
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in (OUTPUT_FILE, STOP_FILE):
            (folder / name).unlink(missing_ok=True)  # the worker makes the first when it begins
        environment = carried_environment() | {"OMP_NUM_THREADS": str(threads)}
        # A lost worker is told, not tried again: whoever killed it may have had a reason
        task = self._ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=0)(_run_there)
        reference = task.remote(str(folder), list(command), environment, str(Path.cwd()))
        return RayRun(self._ray, reference, folder)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


def _run_there(folder: str, command: list[str], environment: dict[str, str], place: str) -> int:
    os.chdir(place)
    return run_to_end(Path(folder), command, environment)


def _typed(options: Mapping[str, str]) -> dict[str, Any]:
    """Return Ray's options with their types."""
    typed: dict[str, Any] = {}
    for name, value in options.items():
        if name not in OPTIONS:
            raise SettingError.broken("--cluster", "one of " + ", ".join(OPTIONS) + " with --launcher ray", name)
        try:
            typed[name] = OPTIONS[name](value)
        except ValueError:
            raise SettingError.broken(f"--cluster {name}", "a whole number", value) from None
    return typed
