"""What a recorded trace says of its model: names and sizes of layers and experts, and where it all comes from."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.layers import MoELayer
from stickymoe.capture.passes import CapturedPass


@dataclass(frozen=True, eq=False)
class LayerFacts:
    """What is true of all tokens of a trace.

    Attributes:
        names: Of the layers, in the order in which they run.
        experts: Experts that hold weights, one number a layer.
        expert_bytes: Bytes of one expert of each layer; None where some layer's experts cannot be told apart.
    """

    names: tuple[str, ...]
    experts: tuple[int, ...]
    expert_bytes: np.ndarray | None

    @property
    def num_experts(self) -> int:
        """Experts of the widest layer."""
        return max(self.experts)


def layer_facts(model: nn.Module, seen: CapturedPass) -> LayerFacts:
    """Return the facts of the layers that ran in a pass.

    A looped layer runs several times and counts as often, each time with the same experts.
    """
    routing = seen.routing
    layers = {layer.name: layer for layer in seen.layers}
    stacks = [stack for stack, of_stack in find_stacks(model).values() if _are(of_stack, seen.layers)]
    experts, sizes = [], []
    for name, gates in zip(seen.layer_names, routing.gate_probs, strict=True):
        layer = layers[name.partition("#")[0]]
        count = layer.family.num_experts(layer.experts, gates.shape[-1])
        experts.append(count)
        sizes.append(_expert_bytes(stacks[0], layer, count))
    known = np.array(sizes, dtype=np.int64) if all(sizes) else None
    return LayerFacts(seen.layer_names, tuple(experts), known)


def _are(one: Sequence[MoELayer], other: Sequence[MoELayer]) -> bool:
    return [layer.path for layer in one] == [layer.path for layer in other]


def _expert_bytes(stack: nn.Module, layer: MoELayer, count: int) -> int:
    """Return the bytes of one of a layer's `count` experts; 0 where they cannot be told apart.

    Where the router has no experts beside it, stacked weights in the block around it are the experts'.
    """
    block = stack.get_submodule(layer.path.rpartition(".")[0])
    experts = layer.experts if layer.experts is not None else getattr(block, "experts", None)
    holder = experts if isinstance(experts, nn.Module) else block
    routers = {id(parameter) for router in layer.routers for parameter in router.parameters()}
    total = 0
    for parameter in holder.parameters():
        if parameter.ndim == 3 and parameter.shape[0] >= count:  # a slice an expert, some with slices never used
            total += parameter.nbytes // parameter.shape[0]
        elif holder is experts and id(parameter) not in routers:
            total += parameter.nbytes // count
    return total


def provenance(name: str, model: Any, **more: Any) -> dict[str, Any]:
    """Return where a trace comes from: model, types, versions, and whatever the caller adds."""
    return {
        "format": "stickymoe record",
        "model": name,
        "model_type": model.config.model_type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else model.device.type,
        "num_experts_from": "declared",
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("stickymoe", "torch", "transformers")},
        },
        **more,
    }
