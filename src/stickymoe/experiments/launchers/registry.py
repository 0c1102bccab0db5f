"""The launchers by name. A new one costs a file and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.launchers.launcher import Launcher

LAUNCHERS = {"local": "LocalLauncher", "ray": "RayLauncher", "slurm": "SlurmLauncher"}


def open_launcher(name: str, folder: Path, options: Sequence[str] = ()) -> Launcher:
    """Return a launcher, ready to start runs.

    Args:
        name: `local`, `ray` or `slurm`.
        folder: Where it may keep what it needs, in a folder of its own.
        options: `key=value`, as the cluster's own library calls them.

    Raises:
        SettingError: An unknown name or option, or the library is not installed.
    """
    require_one_of("--launcher", name, LAUNCHERS)
    module = importlib.import_module(f"stickymoe.experiments.launchers.{name}")
    launcher: Launcher = getattr(module, LAUNCHERS[name]).open(folder, _pairs(options))
    return launcher


def _pairs(options: Sequence[str]) -> dict[str, str]:
    pairs = dict[str, str]()
    for option in options:
        key, separator, value = option.partition("=")
        if not separator or not key.strip():
            raise SettingError.broken("--cluster", "of the form KEY=VALUE", option, "as in slurm_partition=gpu")
        pairs[key.strip()] = value.strip()
    return pairs
