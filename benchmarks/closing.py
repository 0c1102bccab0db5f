"""How every benchmark ends: what it was made with, the file, and the JSON as the last line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stickymoe.core.files import write_json
from stickymoe.experiments.environment import commit, hardware, versions


def made_with() -> dict[str, Any]:
    """Return hardware, versions and commit."""
    return {"hardware": hardware(), "versions": versions(), "commit": commit()}


def close(result: dict[str, Any], path: Path | None) -> None:
    """Write the result to `path`, if there is one, and print it on one line."""
    if path:
        write_json(path, result)
    print(json.dumps(result))
