"""What the queue asks of a launcher, and of a run that one has started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

OUTPUT_FILE = "output.txt"
STOP_FILE = ".stop"
"""Asks a run on another machine to save and end; clusters' own signals come late, or wake nobody."""
FAREWELL_SECONDS = 60.0
"""How long a run that was asked to end may take to save itself."""


class Started(ABC):
    """A run that was started, here or elsewhere."""

    @abstractmethod
    def has_begun(self) -> bool:
        """Tell whether it is at work; on a cluster it may have to wait for its turn."""

    @abstractmethod
    def poll(self) -> int | None:
        """Return its exit code, negative for the signal that killed it; None while it runs."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ask it to save and end."""

    @abstractmethod
    def kill(self) -> None:
        """End it; does nothing to one that has ended."""


class Launcher(ABC):
    """Starts runs. What one prints goes to `OUTPUT_FILE` in its folder, which the launcher makes."""

    @classmethod
    @abstractmethod
    def open(cls, folder: Path, options: Mapping[str, str]) -> Launcher:
        """Return a launcher, ready to start runs.

        Args:
            folder: The sweep's folder, in which it may make one of its own.
            options: The user's options, as the cluster's own library calls them.

        Raises:
            SettingError: An option is unknown, or what it needs is not installed.
        """

    @abstractmethod
    def slots(self) -> int:
        """Return how many runs go on at a time where the user does not say."""

    @abstractmethod
    def start(self, folder: Path, command: Sequence[str], parallel: int) -> Started:
        """Start `python COMMAND`, with the share of the machine that one of `parallel` runs may use.

        Args:
            folder: Where its output goes.
            command: Words after the interpreter; the first is `-m` or `-c`.
            parallel: How many runs go on at a time.
        """

    def follows(self, folder: Path) -> bool:
        """Tell whether a run that was handed in by an earlier process still goes on there; `start` then follows it."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Let go of what the launcher holds; called once, after the last run."""
