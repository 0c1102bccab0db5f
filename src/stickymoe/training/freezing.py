"""Training the routers alone, and the proof that nothing else moved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from stickymoe.core.errors import SettingError
from stickymoe.model.router import Router


def train_routers_only(model: nn.Module) -> list[str]:
    """Freeze every parameter but the routers' and return the names of those, sorted.

    Raises:
        SettingError: The routers have no parameters.
    """
    own = {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, Router)
        for name, _ in module.named_parameters()
    }
    if not own:
        raise SettingError.broken("training.train_only", "'all' where routers have nothing to learn", "routers")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in own)
    return sorted(own)


def fingerprint(model: nn.Module, without: Iterable[str] = ()) -> str:
    """Return the SHA-256 of all weights and buffers that are saved, in the order of their names, but for `without`."""
    left_out = set(without)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name not in left_out:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes()
