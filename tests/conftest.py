"""Switches the checks of shapes and types on: under pytest every annotation in the package is enforced.

A folder of tests may have its own conftest; pytest reads it after this one. Nothing may import the package before.
"""

import gc
import signal
import sys
from pathlib import Path

from jaxtyping import install_import_hook

SOURCE = Path(__file__).resolve().parents[1] / "src"

# transformers builds a config's __init__ from its fields; wrapped by the hook it loses its keyword catch-all.
UNCHECKED = {"stickymoe.model.config"}

# Numba compiles a function as it stands, wrapped by nothing else.
COMPILED = ("_kernel.py", "kernels.py")

# An int is welcome where a float is asked for, as for mypy.
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"


def modules():
    """Every module to check by its own name: the hook takes a package's name for all that is in it."""
    for path in SOURCE.rglob("*.py"):
        if path.stem != "__init__" and not path.name.endswith(COMPILED):
            yield ".".join(path.relative_to(SOURCE).with_suffix("").parts)


if early := [name for name in sys.modules if name.startswith("stickymoe.") and name in set(modules()) - UNCHECKED]:
    raise RuntimeError(f"imported before its types could be checked: {', '.join(early)}")
install_import_hook(sorted(set(modules()) - UNCHECKED), CHECKER)

# What torch and transformers brought with them stays; looking through it for garbage took a tenth of all compile time
gc.set_threshold(20_000)

# Started in the background of a shell, Python is told to ignore Ctrl-C, and its children with it; the tests send it
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Files with slow tests go first, so that at the end no worker is left alone with one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    gc.freeze()
