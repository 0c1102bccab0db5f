"""Turns what can go wrong while a checkpoint is loaded into one line that names it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from safetensors import SafetensorError

from stickymoe.core.errors import CheckpointError, StickyMoEError


@contextlib.contextmanager
def checkpoint_errors(place: object) -> Iterator[None]:
    """Raise whatever loading from `place` raises as a `CheckpointError` of one line."""
    try:
        yield
    except StickyMoEError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CheckpointError(f"could not load {place}: {reason}") from error


def require_all_weights(place: object, loading_info: dict[str, Any], ignore_mismatched_sizes: bool) -> None:
    """Refuse a checkpoint that lacks weights, rather than go on with random ones.

    Raises:
        CheckpointError: Weights are missing, or have another shape than the config says.
    """
    if loading_info["mismatched_keys"] and not ignore_mismatched_sizes:
        name, found, expected = sorted(loading_info["mismatched_keys"])[0]
        raise CheckpointError(
            f"could not load {place}: {name} must be of shape {tuple(expected)} by its config, got {tuple(found)}"
        )
    missing = sorted(loading_info["missing_keys"])
    if missing:
        raise CheckpointError(f"could not load {place}: {len(missing)} weights are missing, {missing[0]} first")
