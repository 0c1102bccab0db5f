"""Timed copies to an accelerator and matrix products on it, for `calibrate`. The only part of it that needs torch."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stickymoe.core.errors import SettingError

DRIVERS = (Path("/dev/nvidia0"), Path("/dev/kfd"), Path("/dev/dxg"))


class Accelerator(NamedTuple):
    """What `calibrate` measures on an accelerator.

    Args:
        name: Of the device.
        copy: Copies that many bytes from pinned host memory, waits, and returns the seconds.
        matmul: Computes one expert for one token and returns the seconds.
    """

    name: str
    copy: Callable[[int], float]
    matmul: Callable[[], float]


def find_accelerator(device: str, expert_bytes: int) -> Accelerator | None:
    """Return the accelerator, or None where there is none.

    Args:
        device: `auto`: look for a driver first, so that a machine without one never loads torch; `cuda`: there must be
            one; `none`.
        expert_bytes: Size of an expert, in bfloat16.

    Raises:
        SettingError: `cuda` was asked for and cannot be had.
    """
    if device == "none" or (device == "auto" and not any(path.exists() for path in DRIVERS)):
        return None
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return _accelerator(expert_bytes)
    if device == "cuda":
        raise SettingError.broken("calibrate.device", "a CUDA device that torch can use", device, "take --device none")
    return None


def _accelerator(expert_bytes: int) -> Accelerator:
    import torch

    source = torch.empty(expert_bytes, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(expert_bytes, dtype=torch.uint8, device="cuda")
    side = max(1, int((expert_bytes / 2) ** 0.5))
    ring = [torch.ones(side, side, dtype=torch.bfloat16, device="cuda") for _ in range(max(2, 2**28 // expert_bytes))]
    token = torch.ones(side, dtype=torch.bfloat16, device="cuda")
    place = 0

    def timed(work: Callable[[], object]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def copy(num_bytes: int) -> float:
        return timed(lambda: target[:num_bytes].copy_(source[:num_bytes], non_blocking=True))

    def matmul() -> float:
        nonlocal place
        place = (place + 1) % len(ring)
        return timed(lambda: ring[place] @ token)

    return Accelerator(torch.cuda.get_device_name(), copy, matmul)
