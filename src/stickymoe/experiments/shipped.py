"""TOML files that come with the package, recipes and sweeps: found by name or path, and read."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest


def shipped(folder: str) -> dict[str, Path]:
    """Return the files of a shipped folder, `recipes` or `sweeps`, by name."""
    installed = Path(str(resources.files("stickymoe.experiments"))) / folder
    # A package of that name may lie where an installed copy has the files; in a checkout they are at its top
    files = sorted(installed.glob("*.toml")) or sorted((Path(__file__).parents[3] / folder).glob("*.toml"))
    return {file.stem: file for file in files}


def find_file(path: Path, folder: str, what: str) -> Path:
    """Return the file at `path`, or the shipped one of that name.

    Args:
        path: A file, or a shipped one's name, with or without folder and ending.
        folder: `recipes` or `sweeps`.
        what: What the file is, for messages.

    Raises:
        SettingError: There is none; the nearest name is named.
    """
    if path.is_file():
        return path
    known = shipped(folder)
    if path.stem in known and path.parent.name in ("", folder) and path.suffix in ("", ".toml"):
        return known[path.stem]
    if path.is_dir():
        own = path / f"{what}.toml"
        raise SettingError(f"{what} {path} is a folder; {f'give {own}' if own.is_file() else 'give a TOML file'}")
    hint = nearest(path.stem, known) or f"shipped {folder}: {', '.join(known)}"
    raise SettingError(f"{what} {path} not found; {hint}")


def read_toml(file: Path, what: str) -> dict[str, Any]:
    """Return the content of a TOML file; its `name` is the file's stem where it gives none.

    Raises:
        SettingError: It cannot be read, or is not TOML.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{what} {file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{what} {file} is not valid TOML: {' '.join(str(error).split())}") from None
    return {"name": file.stem, **content}
