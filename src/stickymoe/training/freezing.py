"""Training the routers alone, and the proof that nothing else moved."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from stickymoe.capture.discovery import find_stacks
from stickymoe.core.errors import SettingError

# What is added to scores for the choice alone: no gradient reaches it, the rule that balances load moves it
_CHOICE_BIAS = re.compile(r"correction_bias|balancing_bias")


def router_parameters(model: nn.Module) -> list[str]:
    """Return the names of the routers' parameters, of any family whose routing can be captured, sorted.

    Left out are routers whose choice is fixed, and biases of the choice (`e_score_correction_bias`), which no gradient
    reaches: they stay as the model's own balancing left them.

    Raises:
        CaptureError: The model's routing cannot be captured.
        SettingError: The routers have no parameters, or they are quantised.
    """
    layers = [layer for _, of_stack in find_stacks(model).values() for layer in of_stack if not layer.is_fixed]
    own = {id(parameter) for layer in layers for router in layer.routers for parameter in router.parameters()}
    named = {
        name: parameter
        for name, parameter in model.named_parameters()
        if id(parameter) in own and not _CHOICE_BIAS.search(name) and ".original_module." not in name
    }
    if not named:
        raise SettingError.broken("training.train_only", "'all' where routers have nothing to learn", "routers")
    for name, parameter in named.items():
        if not parameter.is_floating_point():
            rule = "of a floating-point type to be trained"
            way_out = "leave routers out of quantisation"
            raise SettingError.broken(name, rule, str(parameter.dtype).removeprefix("torch."), way_out)
    return sorted(named)


def train_only(model: nn.Module, names: Iterable[str]) -> list[str]:
    """Freeze every parameter but those of these names, and return them sorted; no type is changed."""
    chosen = set(names)
    for name, parameter in model.named_parameters():
        if name in chosen:
            parameter.requires_grad_(True)
        elif parameter.requires_grad:
            parameter.requires_grad_(False)
    return sorted(chosen)


def train_routers_only(model: nn.Module) -> list[str]:
    """Freeze every parameter but the routers' and return the names of those, sorted; see `router_parameters`."""
    return train_only(model, router_parameters(model))


def fingerprint(model: nn.Module, without: Iterable[str] = ()) -> str:
    """Return the SHA-256 of all weights and buffers that are saved, in the order of their names, but for `without`."""
    left_out = set(without)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if name in left_out:
            continue
        if not isinstance(tensor, Tensor):  # what a module of another library keeps beside its weights
            digest.update(f"{name} {tensor!r}\n".encode())
        else:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes()
