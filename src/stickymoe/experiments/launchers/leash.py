"""Runs `-m MODULE ..` or `-c CODE ..` as python would, and ends when whoever holds the other end of a pipe is gone.

    python -m stickymoe.experiments.launchers.leash DESCRIPTOR -m stickymoe train ...

A parent that is killed outright cannot tell its children. The kernel closes its end of the pipe for it; the child sees
that, asks itself to save and end as SIGTERM would, and is gone a grace period later whatever it does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Sequence

GRACE_SECONDS = 60.0
FORSAKEN = 143  # what a shell calls an end by SIGTERM


def watch(descriptor: int) -> None:
    """Wait for the end of the pipe, then end this process: by SIGTERM, or without asking after `GRACE_SECONDS`."""
    while os.read(descriptor, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(FORSAKEN)


def run(words: Sequence[str]) -> None:
    """Run `-m MODULE ARGUMENTS` or `-c CODE ARGUMENTS`."""
    kind, what, *arguments = words
    if kind == "-m":
        sys.argv = [what, *arguments]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *arguments]
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    else:
        raise SystemExit(f"leash: a command must begin with -m or -c, got {kind!r}")


if __name__ == "__main__":
    # In the background of a shell Ctrl-C is ignored, Ray's workers block signals; both are inherited
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=watch, args=(int(sys.argv[1]),), daemon=True).start()
    run(sys.argv[2:])
