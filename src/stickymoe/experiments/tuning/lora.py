"""Low-rank adapters on the attention projections, beside routers that train; experts are left as they are."""

from __future__ import annotations

import re
import warnings
from typing import Any

from torch import nn

from stickymoe.capture.discovery import find_stacks
from stickymoe.core.errors import SettingError

_ATTENTION = re.compile(r"(^|[._])(self_)?(attn|attention|mixer)([._]|$)", re.IGNORECASE)
MARK = "lora_"


def attention_projections(model: nn.Module) -> list[str]:
    """Return the names of the linear layers inside attention, routers and experts within it excepted.

    Experts are not among them: transformers fuses these into one tensor, which adapters of linear layers do not reach.
    """
    own = {
        id(inner)
        for _, layers in find_stacks(model).values()
        for layer in layers
        for outer in (*layer.routers, layer.experts)
        if outer is not None
        for inner in outer.modules()
    }
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and _ATTENTION.search(name) and id(module) not in own
    ]


def with_adapters(model: nn.Module, rank: int) -> tuple[Any, list[str]]:
    """Return the model with adapters of this rank, which change nothing yet, and the names of their parameters.

    Raises:
        SettingError: PEFT is not installed, or the model has no attention projection of its own.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise SettingError(
            "tune.lora must be 0 without the package peft, which is not installed; pip install peft"
        ) from error
    targets = attention_projections(model)
    if not targets:
        rule = "0 for a model without linear layers in its attention"
        raise SettingError.broken("tune.lora", rule, rank, "train its routers alone")
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of names that PEFT still uses for transformers' sake
        adapted = get_peft_model(model, config)
    return adapted, sorted(name for name, _ in adapted.named_parameters() if MARK in name)
