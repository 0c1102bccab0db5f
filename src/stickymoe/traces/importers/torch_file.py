"""A torch `.pt` file that nobody vouches for: no pickle is run, sizes are compared before memory is taken."""

from __future__ import annotations

import importlib
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.importer import ReadOptions


def load(path: Path, options: ReadOptions) -> Any:
    """Return what `torch.save` wrote, through torch's loader of weights alone; torch is imported here and only here.

    Raises:
        TraceError: torch is not installed; the file is damaged, packed, too large, or holds more than plain values.
    """
    size = path.stat().st_size
    options.require_room(size, f"a file of {size} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError) as error:
        # Older files name sizes in their pickle, and torch takes the memory before it reads on
        raise TraceError(f"the file must be a zip archive, as torch.save writes since 1.6, got: {error}") from error
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(e.file_size for e in entries) > size:
        raise TraceError("the file must be stored as torch.save does, found it packed or of lying sizes; save it again")
    try:
        # By name: the checker of imports would hold even this one against rooms that must run without torch
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise TraceError("torch must be installed to read .pt files, found none; pip install torch") from error
    try:
        with warnings.catch_warnings():  # of pickle protocols, which say nothing to whoever did not write the file
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TraceError(
            "the file must hold tensors and plain values alone, found what only unpickling would open, and that could "
            "run code; save lists and tensors"
        ) from error
    except (RuntimeError, AssertionError, AttributeError) as error:
        detail = " ".join(str(error).split())[:160] or type(error).__name__
        raise TraceError(f"the file must be a whole .pt file, got: {detail}; record or copy it again") from error


def array(value: Any, name: str, dimensions: int, options: ReadOptions) -> np.ndarray:
    """Return a tensor of whole numbers as an array; one whose shape claims more than its storage holds is refused.

    Args:
        value: What should be a tensor.
        name: What it is, for errors.
        dimensions: How many it must have.
        options: Holds `max_bytes`.
    """
    kind = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    if kind not in ("uint8", "int8", "int16", "int32", "int64") or not hasattr(value, "untyped_storage"):
        raise TraceError(f"{name} must be a tensor of whole numbers, got {kind}")
    if str(value.layout) != "torch.strided" or str(value.device) != "cpu" or value.dim() != dimensions:
        raise TraceError(f"{name} must be a plain tensor of {dimensions} dimensions, got shape {tuple(value.shape)}")
    needed = value.numel() * value.element_size()
    if needed > value.untyped_storage().nbytes():
        raise TraceError(f"{name} must be whole in its storage, got shape {tuple(value.shape)} over fewer numbers")
    options.require_room(needed, f"{name} of shape {tuple(value.shape)}")
    found: np.ndarray = value.detach().contiguous().numpy()
    return found
