"""A run folder: the names of what is in it, who may work in it, and whether what is there stands."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from stickymoe.core.errors import CheckpointError, DataError, SettingError, StickyMoEError, StorageError
from stickymoe.core.files import read_json
from stickymoe.experiments.environment import code_version
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import load_recipe
from stickymoe.experiments.results import RunResult

RECIPE_FILE = "recipe.toml"
MODEL_FOLDER = "model"
WEIGHTS_FILE = "model.safetensors"
REPORT_FILE = "report.html"
TRAIN_FACTS_FILE = "train.json"
LOCK_FILE = ".lock"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Create the folder and keep a second process out of it; the claim ends with the process, however that ends.

    Raises:
        SettingError: Another process has it.
        StorageError: It cannot be made or written.
    """
    lock = FileLock(folder / LOCK_FILE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        message = f"{folder} is in use by another training process; wait for its end or choose another --out"
        raise SettingError(message) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"run folder {folder} cannot be written: {reason}; choose another --out") from error
    try:
        yield
    finally:
        lock.release()


def require_own_recipe(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Refuse a folder that holds a run already, unless it is this recipe's and is to be resumed.

    Raises:
        SettingError: The message names what differs.
    """
    known = folder / RECIPE_FILE
    if not known.exists():
        return
    if not resume:
        raise SettingError(f"{folder} already holds a run; add --resume to go on with it, or choose another --out")
    old, new = load_recipe(known).outcome(), recipe.outcome()
    changed = [
        f"{table}.{key} {old[table].get(key)!r} -> {entries.get(key)!r}"
        for table, entries in new.items()
        for key in old[table] | entries
        if entries.get(key) != old[table].get(key)
    ]
    if changed:
        raise SettingError(f"{folder} holds a run of another recipe ({', '.join(changed)}); choose another --out")


def recipe_of(folder: Path) -> Recipe:
    """Return the recipe of a trained run.

    Raises:
        CheckpointError: The folder holds no trained model, or no recipe.
    """
    model_folder(folder)
    if not (folder / RECIPE_FILE).exists():
        raise CheckpointError(f"{folder} is no run folder, it has no {RECIPE_FILE}; give one made by stickymoe train")
    return load_recipe(folder / RECIPE_FILE)


def model_folder(run: Path) -> Path:
    """Return where the model of a run folder lies; a folder with a saved model is its own.

    Raises:
        CheckpointError: There is none; the message says how to get one.
    """
    for folder in (run / MODEL_FOLDER, run):
        if (folder / "config.json").exists():
            return folder
    if not run.exists():
        raise CheckpointError(f"run folder {run} does not exist; train one with stickymoe train RECIPE --out {run}")
    if (run / RECIPE_FILE).exists():
        command = ["stickymoe", "train", str(run / RECIPE_FILE), "--out", str(run), "--resume"]
        raise CheckpointError(f"{run} holds an unfinished run; finish it with {shlex.join(command)}")
    raise CheckpointError(f"{run} holds no trained model; give a folder made by stickymoe train")


def stands(folder: Path, recipe: Recipe) -> bool:
    """Tell whether what the folder holds may be gone on with: a run of this recipe, and, if trained, by this code."""
    try:
        if load_recipe(folder / RECIPE_FILE).fingerprint() != recipe.fingerprint():
            return False
        if not (folder / TRAIN_FACTS_FILE).exists():
            return True
        return bool(read_facts(folder).get("made_by") == code_version())
    except StickyMoEError:
        return False


def is_finished(folder: Path, recipe: Recipe, split: str) -> bool:
    """Tell whether the folder holds this recipe's model, and its result on this split, made by this code."""
    return stands(folder, recipe) and has_result(folder, recipe, split)


def has_result(folder: Path, recipe: Recipe, split: str) -> bool:
    """Tell whether the folder holds this recipe's model and its result on this split, whatever code made them."""
    if not (folder / MODEL_FOLDER / WEIGHTS_FILE).exists():
        return False
    try:
        result = RunResult.load(folder)
    except DataError:
        return False
    return (
        result.metrics.get("recipe") == recipe.fingerprint()
        and result.metrics["split"] == split
        and result.label == (recipe.label or recipe.name)
        and trace_file(folder, split).exists()
    )


def trace_file(folder: Path, split: str) -> Path:
    """Return where the routing trace of a split lies."""
    return folder / f"trace-{split}.parquet"


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what training left behind of itself.

    Raises:
        CheckpointError: It cannot be read.
    """
    return read_json(folder / TRAIN_FACTS_FILE, CheckpointError, "train the run again in another folder")
