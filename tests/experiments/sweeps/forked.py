"""A sweep in a process of its own whose runs are forked from it: real processes, without seconds of imports each."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from stickymoe.cli import main
from stickymoe.experiments import runner
from stickymoe.experiments.launchers import leash
from stickymoe.experiments.launchers.launcher import OUTPUT_FILE, Launcher, Started
from stickymoe.experiments.sweeps.sweep import run_sweep
from stickymoe.experiments.sweeps.sweep_file import Sweep


class Forked(Started):
    def __init__(self, pid: int, leash_end: int) -> None:
        self.pid, self.leash_end, self.code = pid, leash_end, None

    def has_begun(self) -> bool:
        return True

    def poll(self) -> int | None:
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def interrupt(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class ForkLauncher(Launcher):
    """Does what `LocalLauncher` does, leash and all, with `fork` in place of a new interpreter."""

    @classmethod
    def open(cls, folder: Path, options: object) -> ForkLauncher:
        return cls()

    def slots(self) -> int:
        return 2

    def start(self, folder: Path, command: list[str], parallel: int) -> Forked:
        folder.mkdir(parents=True, exist_ok=True)
        theirs, ours = os.pipe()
        pid = os.fork()
        if pid:
            os.close(theirs)
            return Forked(pid, ours)
        try:
            for descriptor in range(3, 256):  # what is not inherited by a new interpreter
                if descriptor != theirs and os.path.exists(f"/proc/self/fd/{descriptor}"):  # noqa: PTH110
                    link = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
                    if link.startswith("pipe") or link.endswith(".lock"):
                        os.close(descriptor)
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            output = os.open(folder / OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            threading.Thread(target=leash.watch, args=(theirs,), daemon=True).start()
            main(command[2:])
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 0)
        finally:
            os._exit(99)

    def close(self) -> None:
        pass


def child(out: str, content: str, environment: dict[str, str]) -> None:
    """Run the sweep; end with 0, or 130 after Ctrl-C."""
    os.environ.update(environment)
    runner._POLL_SECONDS = 0.01
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sweep = Sweep.model_validate_json(content)
    said = Path(out).parent / "said"
    said.parent.mkdir(parents=True, exist_ok=True)
    with said.open("a") as sys.stdout:
        sys.stderr = sys.stdout
        try:
            entries = run_sweep(sweep, Path(out), launcher=ForkLauncher())
        except KeyboardInterrupt:
            os._exit(130)
    os._exit(0 if all(entry.is_done for entry in entries) else 3)


if __name__ == "sweep_child":  # how the test runs this file
    child(*CHILD)  # noqa: F821 - given by runpy
