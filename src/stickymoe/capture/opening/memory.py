"""Whether a model's weights fit into the memory of a device, before they are loaded."""

from __future__ import annotations

import torch

from stickymoe.cache.cost.ram import available_ram_bytes
from stickymoe.core.errors import CheckpointError

ROOM = 1.05  # weights and something to work in


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes a device has free for this process; None where that is not told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_ram_bytes() if device.type == "cpu" else None


def require_room(name: str, needed: int, dtype: str, device: torch.device) -> None:
    """Refuse weights that the device has no room for.

    Args:
        name: The model.
        needed: Bytes of its weights.
        dtype: What they become, for the message.
        device: Where they go.

    Raises:
        CheckpointError: There is too little; the message has both sides in GiB.
    """
    free = free_bytes(device)
    if free is None or needed * ROOM <= free:
        return
    where = "main memory" if device.type == "cpu" else f"the GPU ({device})"
    raise CheckpointError(
        f"{name} needs {_gib(needed * ROOM)} GiB of memory for its weights in {dtype}, {where} has {_gib(free)} GiB "
        "free; choose a smaller dtype, another device, or a smaller model"
    )


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.3g}"
