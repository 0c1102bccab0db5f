"""Turns what can go wrong while a checkpoint is loaded into one line that names it."""

from __future__ import annotations

import contextlib
import logging
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


@contextlib.contextmanager
def load_report(shown: bool) -> Iterator[None]:
    """Keep transformers' table of weights that do not fit off the terminal, unless `shown`: we say it in one line."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return shown or "LOAD REPORT" not in record.getMessage()

    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(is_wanted)
    try:
        yield
    finally:
        logger.removeFilter(is_wanted)


def require_its_own_weights(place: object, loading_info: dict[str, Any], ignore_mismatched_sizes: bool) -> None:
    """Refuse a checkpoint that lacks weights or holds unknown ones; neither random ones nor dropped ones go unseen.

    Raises:
        CheckpointError: Weights are missing, unknown, or of another shape than the config says.
    """
    if loading_info["mismatched_keys"] and not ignore_mismatched_sizes:
        name, found, expected = sorted(loading_info["mismatched_keys"])[0]
        raise CheckpointError(
            f"could not load {place}: {name} must be of shape {tuple(expected)} by its config, got {tuple(found)}"
        )
    # The body alone has no use for the head of the whole
    unknown = [name for name in loading_info["unexpected_keys"] if not name.startswith("lm_head.")]
    for found, what in ((loading_info["missing_keys"], "missing"), (unknown, "not of this model")):
        if found:
            name = min(found)
            raise CheckpointError(f"could not load {place}: {name} and {len(found) - 1} other weights are {what}")
