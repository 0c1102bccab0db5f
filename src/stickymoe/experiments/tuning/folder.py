"""The folder of a tuning: what it was asked, what it found, and whether a second call goes on with the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stickymoe.core.errors import DataError, SettingError
from stickymoe.core.files import read_json, write_json
from stickymoe.experiments.tuning.measured import Measured

ASKED = "asked.json"
RESULT = "tuning.json"
MEASURED = "measured.json"
MODEL = "model"
_AGAIN = "start again in another folder"


class TuneFolder:
    """Where a tuning keeps its things.

    Args:
        path: The folder.
        resume: Whether to go on with what is in it.

    Raises:
        SettingError: It holds something and is not to be resumed, or is to be and holds no tuning.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.resume = resume
        if path.exists() and not path.is_dir():
            raise SettingError.broken("out", "a folder", str(path), "a file is in the way, name another")
        if resume:
            if not (path / ASKED).is_file():
                raise SettingError.broken("out", f"a tuning to resume, with {ASKED}", str(path), "leave --resume out")
        elif path.is_dir() and any(path.iterdir()):
            raise SettingError.broken(
                "out", "a new or empty folder", str(path), "name another, or resume with --resume"
            )

    def begin(self, asked: dict[str, Any]) -> None:
        """Note what is asked; resuming, hold it against what was.

        Raises:
            SettingError: Something else was asked; the first difference is told.
        """
        path = self.path / ASKED
        if not self.resume:
            write_json(path, asked)
            return
        before = read_json(path, DataError, _AGAIN)
        here = json.loads(json.dumps(asked))
        for name in dict.fromkeys([*before, *here]):
            if before.get(name) != here.get(name):
                found = f"{_short(here.get(name))}, it began with {_short(before.get(name))}"
                raise SettingError(f"{name} must be as when {self.path} began, got {found}; resume with the same")

    def arm(self, name: str) -> Path:
        """Return where an arm keeps its things."""
        return self.path / name

    def measured(self, name: str) -> Measured | None:
        """Return what an arm's model measured, if it got that far."""
        path = self.arm(name) / MEASURED
        if not (self.resume and path.is_file()):
            return None
        return Measured.from_dict(read_json(path, DataError, _AGAIN), str(path))

    def keep(self, name: str, found: Measured) -> None:
        """Note what an arm's model measured; the last thing that an arm writes."""
        write_json(self.arm(name) / MEASURED, found.as_dict())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
