"""Whether a checkpoint is of the model that is to go on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stickymoe.core.errors import CheckpointError
from stickymoe.core.files import read_json

# Differences that leave the function computed from given weights alone.
_HARMLESS = {"architectures", "dtype", "torch_dtype", "transformers_version", "use_cache", "initializer_range"}


def require_same_architecture(checkpoint: Path, config: dict[str, Any]) -> None:
    """Refuse a checkpoint whose `config.json` describes another model than `config`.

    Raises:
        CheckpointError: They differ; the message names the first differing fields with both values.
    """
    path = checkpoint / "config.json"
    saved = read_json(path, CheckpointError, "use another checkpoint")
    here = json.loads(json.dumps(config, default=str))
    names = ["model_type", *sorted(name for name in saved.keys() & here.keys() if _matters(name))]
    differing = [name for name in dict.fromkeys(names) if saved.get(name) != here.get(name)]
    if differing:
        shown = ", ".join(f"{name} {saved.get(name)!r} there and {here.get(name)!r} here" for name in differing[:3])
        raise CheckpointError(
            f"{checkpoint} is of another architecture: {shown}; resume with the model it was saved with, or start "
            "again in another folder"
        )


def _matters(name: str) -> bool:
    return not name.startswith("_") and name not in _HARMLESS and "dropout" not in name
