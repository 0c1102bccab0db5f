"""Finds the MoE layers of a model through its own declaration of recordable outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from stickymoe.capture.families import FAMILIES, Family, OwnFamily, UnknownFamily, family_of
from stickymoe.capture.families.unknown import HOW_TO
from stickymoe.capture.layers import MoELayer
from stickymoe.core.errors import CaptureError
from stickymoe.model import Router, StickyMoEModel

_PLAIN = Family()
# What wrappers put between a router's place and the router: PEFT's copies and adapters
_WRAPPED = re.compile(r"\.(original_module|modules_to_save\.\w+|base_layer)(?=\.|$)")


def find_stacks(model: nn.Module) -> dict[str, tuple[nn.Module, list[MoELayer]]]:
    """Return each stack of layers that has routers, by its path, with its MoE layers in order.

    Raises:
        CaptureError: The model has no MoE layer, or is of a family that is refused.
    """
    found: dict[str, tuple[nn.Module, list[MoELayer]]] = {}
    for path, stack in model.named_modules():
        if isinstance(stack, StickyMoEModel):
            found[path] = stack, _own_layers(stack)
        elif isinstance(stack, PreTrainedModel):
            layers = _declared_layers(stack)
            if layers:
                found[path] = stack, layers
    found = found or _undeclared_stacks(model)
    if not found:
        raise CaptureError(
            f"{type(model).__name__} has no router beside experts: if its layers are dense there is no routing to "
            f"capture; if they are not, {HOW_TO}"
        )
    return found


def _undeclared_stacks(model: nn.Module) -> dict[str, tuple[nn.Module, list[MoELayer]]]:
    """Return what looks like MoE layers in a model that declares none: a gate or router beside experts."""
    modules: dict[str, nn.Module] = dict(model.named_modules())
    stacks = [path for path, module in modules.items() if isinstance(module, PreTrainedModel)] or [""]
    found: dict[str, tuple[nn.Module, list[MoELayer]]] = {}
    for path, block in modules.items():
        experts = getattr(block, "experts", None)
        router = getattr(block, "gate", getattr(block, "router", None))
        if isinstance(experts, nn.Module) and isinstance(router, nn.Module):
            stack = max((place for place in stacks if f"{path}.".startswith(f"{place}.".lstrip("."))), key=len)
            family = UnknownFamily(type(modules[stack]).__name__)
            inside = path.removeprefix(f"{stack}.") if stack else path
            layer = MoELayer(family.layer_name(inside), inside, family, (router,), -1, experts)
            found.setdefault(stack, (modules[stack], []))[1].append(layer)
    return found


def _own_layers(stack: nn.Module) -> list[MoELayer]:
    family = OwnFamily("stickymoe")
    return [
        MoELayer(family.layer_name(path), path, family, (router,), 0, None)
        for path, router in stack.named_modules()
        if isinstance(router, Router)
    ]


def _declared_layers(stack: PreTrainedModel) -> list[MoELayer]:
    """Return the layers whose routers `stack` is the innermost model to hold."""
    grouped: dict[str, list[tuple[nn.Module, int]]] = {}
    for path, router, index in _declared_routers(stack):
        grouped.setdefault(_WRAPPED.sub("", path), []).append((router, index))
    layers = []
    for path, routers in grouped.items():
        name = family_of(routers[0][0])
        family = FAMILIES.get(name) or UnknownFamily(name or type(stack).__name__)
        if family.refused:
            raise CaptureError(f"{type(stack).__name__} cannot be captured: {family.refused}")
        experts = _experts_of(stack, path)
        modules = tuple(router for router, _ in routers)
        layers.append(MoELayer(family.layer_name(path), path, family, modules, routers[0][1], experts))
    return layers


def _declared_routers(stack: PreTrainedModel) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield path, router and the index of its logits, for routers not inside an inner model."""
    declared: Any = (getattr(type(stack), "_can_record_outputs", None) or {}).get("router_logits")
    if declared is None:
        return
    recorders: Sequence[Any] = declared if isinstance(declared, list) else [declared]
    modules: dict[str, nn.Module] = dict(stack.named_modules())
    inner = tuple(f"{path}." for path, module in modules.items() if path and isinstance(module, PreTrainedModel))
    for path, module in modules.items():
        if path.startswith(inner):
            continue
        family = FAMILIES.get(family_of(module), _PLAIN)
        if type(module).__name__ in family.undeclared:
            yield path, module, 0
        elif not family.declares_others:
            index = _declared_index(recorders, path, module)
            if index is not None:
                yield path, module, index


def _declared_index(recorders: Sequence[Any], path: str, module: nn.Module) -> int | None:
    """Return where a module's outputs hold the logits, if one of the model's recorders means it."""
    for recorder in recorders:
        target = getattr(recorder, "target_class", recorder)
        place = getattr(recorder, "layer_name", None)
        inside = place is None or f".{place.strip('.')}." in f".{_WRAPPED.sub('', path)}."
        if isinstance(target, type) and isinstance(module, target) and inside:
            return int(getattr(recorder, "index", 1))
    return None


def _experts_of(stack: nn.Module, path: str) -> nn.Module | None:
    """Return the experts beside a router: those of the nearest module around it that has any."""
    place = path
    while place:
        place = place.rpartition(".")[0]
        experts = getattr(stack.get_submodule(place), "experts", None)
        if isinstance(experts, nn.Module) and not f"{path}.".startswith(f"{place}.experts.".lstrip(".")):
            return experts
    return None
