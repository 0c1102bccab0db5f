"""The tuned model on disk: whole or not at all, quantised weights in the form in which they came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stickymoe.core.files import storage_errors, whole_folder
from stickymoe.experiments.tuning.proof import OnDisk, compare_on_disk
from stickymoe.model.quiet import without_progress_bars

CONVERSIONS = "_weight_conversions"  # transformers' note of how a checkpoint became the model


class NotWritable(Exception):
    """transformers cannot write the model back in the form in which it was read; only ever seen inside this room."""


def save_beside(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, place: Path, came_from: Path
) -> OnDisk | None:
    """Save a model that was read from `came_from`, and compare the two.

    Returns:
        How they differ; None where one of them holds no safetensors.

    Raises:
        NotWritable: Its quantised weights have no way back; nothing was saved.
        StorageError: The disk refuses a file.
    """
    try:
        with storage_errors(place), without_progress_bars(), whole_folder(place) as partial:
            with _quantised_as_they_are(model) as left_out:
                model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            found = compare_on_disk(came_from, partial)
            if left_out and (found is None or found.missing):
                raise NotWritable
    except NotImplementedError as error:
        raise NotWritable from error
    return found


@contextmanager
def _quantised_as_they_are(model: Any) -> Iterator[bool]:
    """Leave out conversions that cannot be reverted, and say whether there were any.

    bitsandbytes has such a one for reading; what it reads is what the layers themselves put into a state dict.
    """
    read_by = getattr(model, CONVERSIONS, None) or []
    kept = [each for each in read_by if _reverts(each)]
    if len(kept) == len(read_by):
        yield False
        return
    setattr(model, CONVERSIONS, kept)
    try:
        yield True
    finally:
        setattr(model, CONVERSIONS, read_by)


def _reverts(conversion: Any) -> bool:
    try:
        conversion.reverse_transform()
    except (NotImplementedError, ValueError):
        return False
    return True
