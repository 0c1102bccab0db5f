"""Checkpoints that are whole or not at all: sealed with a manifest, verified before use, rotated with care."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stickymoe.core.errors import CheckpointError
from stickymoe.core.files import flush_to_disk, sha256_of, storage_errors, write_json

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
SCHEMA = 1
_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the checkpoint folders of a run, sealed or not, oldest step first."""
    named = [(_NAME.fullmatch(path.name), path) for path in folder.glob("checkpoint-*") if path.is_dir()]
    found = {int(match[1]): path for match, path in named if match is not None}
    return [found[step] for step in sorted(found)]


def step_of(checkpoint: Path) -> int:
    """Return the step a checkpoint was saved at."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise CheckpointError(f"{checkpoint} must be a folder named checkpoint-STEP; give one of a run's checkpoints")
    return int(match[1])


@contextlib.contextmanager
def whole_checkpoint(folder: Path) -> Iterator[None]:
    """Let the body write `folder`, then seal it; whatever goes wrong, no half-written folder stays.

    Raises:
        StorageError: The disk is full or refuses the write; earlier checkpoints are as they were.
    """
    discard(folder)
    try:
        with storage_errors(folder, "earlier checkpoints are intact", "free some space and resume"):
            yield
            seal(folder)
    except BaseException:
        discard(folder)
        raise


def seal(folder: Path) -> None:
    """Flush every file of a checkpoint to disk and, last of all, write the manifest that vouches for them."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / MANIFEST):
        flush_to_disk(path)
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    flush_to_disk(folder)
    write_json(folder / MANIFEST, {"schema": SCHEMA, "step": step_of(folder), "files": files})
    flush_to_disk(folder)


def verify(folder: Path) -> None:
    """Check every file of a checkpoint against its manifest.

    Raises:
        CheckpointError: A file is missing or changed (the message names it), or there is no usable manifest.
    """
    for name, expected in _manifest(folder).items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; use an earlier checkpoint")
        if path.stat().st_size != expected["bytes"]:
            raise CheckpointError(
                f"{path} is damaged: it must have {expected['bytes']} bytes, got {path.stat().st_size}; "
                "use an earlier checkpoint"
            )
        if sha256_of(path) != expected["sha256"]:
            raise CheckpointError(f"{path} is damaged: its SHA-256 is not the manifest's; use an earlier checkpoint")


def newest_good_checkpoint(folder: Path | str) -> Path | None:
    """Return the newest checkpoint of a run that passes `verify`, with a warning for every newer one that does not.

    Returns:
        None where the run has no sealed checkpoint at all, so that training starts from the beginning.

    Raises:
        CheckpointError: There are sealed checkpoints, but every one is damaged.
    """
    damage: list[str] = []
    for checkpoint in reversed(checkpoints_in(Path(folder))):
        if not (checkpoint / MANIFEST).exists():
            log.warning("%s is unfinished (no %s) and is not used", checkpoint, MANIFEST)
            continue
        try:
            verify(checkpoint)
        except CheckpointError as error:
            log.warning("%s is refused: %s", checkpoint.name, error)
            damage.append(str(error))
        else:
            return checkpoint
    if damage:
        raise CheckpointError(f"no checkpoint in {folder} can be used ({damage[0]}); start again in another folder")
    return None


def rotate(folder: Path, keep: int | None, also_keep: Path | None = None) -> None:
    """Delete all but the newest `keep` sealed checkpoints, and what unsealed ones are older than the newest sealed.

    Called after the newest has been sealed; it is never deleted. The manifest goes first, so that a kill on the way
    leaves nothing that looks whole.
    """
    found = checkpoints_in(folder)
    sealed = [path for path in found if (path / MANIFEST).exists()]
    if not sealed:
        return
    kept = set(sealed if keep is None else sealed[-max(keep, 1) :])
    for path in found:
        if path not in kept and path != also_keep and step_of(path) < step_of(sealed[-1]):
            discard(path)


def discard(folder: Path) -> None:
    """Delete a checkpoint folder, its manifest first."""
    with contextlib.suppress(OSError):
        (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {MANIFEST}, so it was not saved whole; use an earlier checkpoint")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content["files"].items()
        files = {str(name): {"bytes": int(of["bytes"]), "sha256": str(of["sha256"])} for name, of in entries}
        if content["schema"] != SCHEMA or content["step"] != step_of(folder) or not files:
            raise ValueError("not the manifest of this checkpoint")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}; use an earlier checkpoint") from error
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in files):
        raise CheckpointError(f"{path} is damaged: it names files outside its folder; use an earlier checkpoint")
    return files
