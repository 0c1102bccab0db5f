"""The run folders of a sweep: whether what lies there may be gone on with, and what is kept of a finished run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from filelock import FileLock, Timeout

from stickymoe.core.errors import SettingError
from stickymoe.core.files import write_json
from stickymoe.data import Corpus
from stickymoe.experiments.results import METRICS_FILE
from stickymoe.experiments.run_folder import LOCK_FILE, MODEL_FOLDER, WEIGHTS_FILE, claimed, has_result
from stickymoe.experiments.sweeps.collect import fingerprint_of
from stickymoe.experiments.sweeps.plan import PlannedRun
from stickymoe.training.checkpoints import checkpoints_in, discard

KEYS_FILE = "sweep.json"
STRAGGLER_SECONDS = 90.0


def prepare(run: PlannedRun, folder: Path, corpus: Corpus) -> None:
    """Make way for a run: what is there of another recipe, text or code goes, what can be gone on with stays.

    Raises:
        SettingError: Another process works there, and does not end.
    """
    wait_for_stragglers(folder)
    with claimed(folder):
        keys = _keys(run, corpus)
        found = _read(folder / KEYS_FILE)
        if found.get("training") != keys["training"]:
            for path in folder.iterdir():
                if path.name != LOCK_FILE:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif found != keys:
            (folder / METRICS_FILE).unlink(missing_ok=True)  # the weights stand, the way of measuring has changed
        write_json(folder / KEYS_FILE, keys)


def require_own(run: PlannedRun, folder: Path, corpus: Corpus) -> None:
    """Refuse a folder where a job still goes on that is not this run's.

    Raises:
        SettingError: It is of another recipe, text or code.
    """
    if _read(folder / KEYS_FILE) != _keys(run, corpus):
        raise SettingError(f"{folder} has a job of another recipe still going on; cancel it and run the same command")


def is_measured(run: PlannedRun, folder: Path, corpus: Corpus) -> bool:
    """Tell whether the run was trained and measured there, so that only its row is missing."""
    return _read(folder / KEYS_FILE) == _keys(run, corpus) and has_result(folder, run.recipe, run.split)


def has_model(run: PlannedRun, folder: Path, corpus: Corpus) -> bool:
    """Tell whether the folder holds the run's trained model."""
    keys = _read(folder / KEYS_FILE)
    return keys.get("training") == _keys(run, corpus)["training"] and (folder / MODEL_FOLDER / WEIGHTS_FILE).exists()


def tidy(folder: Path) -> None:
    """Let the checkpoints of a finished run go; its model, log and trace stay."""
    for checkpoint in checkpoints_in(folder):
        discard(checkpoint)


def wait_for_stragglers(folder: Path) -> None:
    """Wait for a run that still saves itself because the sweep that started it was killed.

    Raises:
        SettingError: It is still at work after `STRAGGLER_SECONDS`.
    """
    if not (folder / LOCK_FILE).exists():
        return
    try:
        FileLock(folder / LOCK_FILE).acquire(timeout=STRAGGLER_SECONDS).lock.release()
    except Timeout:
        raise SettingError(f"{folder} is in use by another training process; wait for its end") from None


def _keys(run: PlannedRun, corpus: Corpus) -> dict[str, str]:
    text = fingerprint_of(corpus)
    return {"training": f"{run.training_key} {text}", "result": f"{run.key} {text}"}


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
