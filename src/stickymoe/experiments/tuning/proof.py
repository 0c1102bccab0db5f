"""The proof that tuning changed what was chosen and nothing else: in memory by hash, on disk tensor by tensor."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from stickymoe.core.errors import TrainingError


@dataclass(frozen=True)
class Proof:
    """What changed and what did not.

    Attributes:
        chosen: Names of the parameters that were to be trained.
        trained: How many numbers these are.
        total: How many the model has.
        before: SHA-256 of all else that is saved, before training.
        after: The same after it; equal, or there would be no proof.
        moved: Which of the chosen parameters ended otherwise than they began.
    """

    chosen: list[str]
    trained: int
    total: int
    before: str
    after: str
    moved: list[str]

    def __post_init__(self) -> None:
        """Hold the hashes against each other.

        Raises:
            TrainingError: They differ.
        """
        if self.before != self.after:
            raise TrainingError(
                f"something changed that was not to be trained: SHA-256 {self.before[:16]} became {self.after[:16]}; "
                "nothing was saved, please report it"
            )

    def worded(self) -> str:
        """Return the proof in two lines."""
        return (
            f"changed: {len(self.moved)} of {len(self.chosen)} chosen tensors, {self.trained:,} numbers of "
            f"{self.total:,}\n"
            f"unchanged: all else, SHA-256 {self.before} before and after"
        )


@dataclass(frozen=True)
class OnDisk:
    """Two saved models, held against each other tensor by tensor.

    Attributes:
        tensors: How many the first has.
        changed: Names of those that differ in any bit, or in type or shape.
        missing: Names that only one of them has.
    """

    tensors: int
    changed: list[str]
    missing: list[str]


def hash_of(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of weights in main memory, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def compare_on_disk(before: Path, after: Path) -> OnDisk | None:
    """Compare the safetensors of two folders, one tensor in memory at a time; None where one of them has none."""
    with ExitStack() as stack:
        left, right = (_tensors(folder, stack) for folder in (before, after))
        if not left or not right:
            return None
        common = sorted(left.keys() & right.keys())
        changed = [name for name in common if _differs(left[name].get_tensor(name), right[name].get_tensor(name))]
        return OnDisk(len(left), changed, sorted(left.keys() ^ right.keys()))


def _tensors(folder: Path, stack: ExitStack) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        file = stack.enter_context(safe_open(path, framework="pt"))
        found |= dict.fromkeys(file.keys(), file)
    return found


def _differs(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return True
    return not torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))
