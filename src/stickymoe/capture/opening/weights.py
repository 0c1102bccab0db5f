"""A checkpoint's weights by their headers: every shard there and whole, and how much memory they will take."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from stickymoe.capture.opening.configuration import DAMAGED
from stickymoe.core.errors import CheckpointError
from stickymoe.core.files import read_json

_MOST_HEADER_BYTES = 10**8  # the format's own limit


class Stored(NamedTuple):
    """One tensor as it is stored."""

    dtype: str
    values: int
    num_bytes: int


@dataclass(frozen=True)
class Weights:
    """What the headers of a checkpoint's files say.

    Attributes:
        files: The files, sorted by name.
        tensors: By name.
    """

    files: tuple[Path, ...]
    tensors: dict[str, Stored]

    def bytes_in(self, dtype: torch.dtype | None) -> int:
        """Return the bytes of all tensors when those of floating point become `dtype`; as stored if None."""
        if dtype is None:
            return sum(tensor.num_bytes for tensor in self.tensors.values())
        size = dtype.itemsize
        return sum(
            tensor.values * size if tensor.dtype in _FLOATS else tensor.num_bytes for tensor in self.tensors.values()
        )

    @property
    def dtype(self) -> torch.dtype | None:
        """What most values are stored as, if that is a plain floating point type."""
        counted: dict[str, int] = {}
        for tensor in self.tensors.values():
            counted[tensor.dtype] = counted.get(tensor.dtype, 0) + tensor.values
        return _FLOATS.get(max(counted, key=lambda name: counted[name])) if counted else None


_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_weights(folder: Path) -> Weights:
    """Read the headers of a checkpoint's safetensors, and nothing else.

    Raises:
        CheckpointError: There are none, a shard is missing or cut short, or the index names what no shard holds.
    """
    index, single = folder / SAFE_WEIGHTS_INDEX_NAME, folder / SAFE_WEIGHTS_NAME
    if not index.is_file():
        if single.is_file():
            return Weights((single,), _header(single))
        raise _no_weights(folder)
    place_of = read_json(index, CheckpointError, DAMAGED).get("weight_map")
    if not isinstance(place_of, dict) or not place_of or not all(isinstance(name, str) for name in place_of.values()):
        raise CheckpointError(f"{index} must map the names of weights to files in weight_map; download it again")
    names = sorted(set(place_of.values()))
    if foreign := [name for name in names if Path(name).name != name]:
        raise CheckpointError(f"{index} must name files beside it, got {foreign[0]!r}")
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of {len(names)} files of weights, the first is {missing[0]}; "
            "download or copy the checkpoint again"
        )
    shards = {name: _header(folder / name) for name in names}
    for tensor, name in place_of.items():
        if tensor not in shards[name]:
            raise CheckpointError(
                f"{folder / name} lacks {tensor}, which {index.name} says it holds; download it again"
            )
    tensors = {tensor: shards[name][tensor] for tensor, name in place_of.items()}
    return Weights(tuple(folder / name for name in names), tensors)


def _no_weights(folder: Path) -> CheckpointError:
    if next(folder.glob("pytorch_model*.bin"), None) is not None:
        return CheckpointError(
            f"{folder} has its weights as pickled pytorch_model.bin, which is not opened; "
            "save it as safetensors (model.save_pretrained) and give that folder"
        )
    return CheckpointError(f"{folder} holds no {SAFE_WEIGHTS_NAME}; download or copy the checkpoint again")


def _header(path: Path) -> dict[str, Stored]:
    """Return the tensors of one file, after checking that the file holds all their bytes."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MOST_HEADER_BYTES):
                raise _cut_short(path, 8 + length, size)
            content: dict[str, Any] = json.loads(file.read(length))
        content.pop("__metadata__", None)
        tensors = {
            name: Stored(
                str(told["dtype"]), math.prod(told["shape"]), told["data_offsets"][1] - told["data_offsets"][0]
            )
            for name, told in content.items()
        }
        end = 8 + length + max((told["data_offsets"][1] for told in content.values()), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{path} is no safetensors file ({reason}); download or copy it again") from error
    if end != size:
        raise _cut_short(path, end, size)
    return tensors


def _cut_short(path: Path, expected: int, size: int) -> CheckpointError:
    return CheckpointError(
        f"{path} must have {expected:,} bytes by its header, got {size:,}; download or copy it again"
    )
