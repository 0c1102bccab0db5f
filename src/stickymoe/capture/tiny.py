"""A tiny random model of every MoE family that transformers knows, for tests and for the table of models."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers.models
from transformers import PreTrainedConfig, PreTrainedModel

from stickymoe.core.settings import require_one_of

# What the fields of a config are called, and how small they may be; a config takes those that it has
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
# Where that is not enough, or not all of a family would run
_LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
SPECIAL: dict[str, dict[str, Any]] = {
    "deepseek_v3": _LATENT,
}

_DECLARES = re.compile(rb'"router_logits": OutputRecorder\(')


@cache
def families() -> tuple[str, ...]:
    """Return transformers' names of all families with a class that declares routers, in alphabetical order."""
    found = []
    for module in pkgutil.iter_modules(transformers.models.__path__):
        source = Path(transformers.models.__path__[0], module.name, f"modeling_{module.name}.py")
        if source.exists() and _DECLARES.search(source.read_bytes()):
            found.append(module.name)
    return tuple(sorted(found))


def model_class(family: str) -> type[PreTrainedModel]:
    """Return the family's language model, or its text body where only a larger whole has a language model."""
    require_one_of("family", family, families())
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    classes = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, PreTrainedModel) and kind.__module__ == module.__name__
    }
    for ending in ("ForCausalLM", "TextModel", "ForConditionalGeneration", "Model"):
        fitting = sorted((name for name in classes if name.endswith(ending)), key=len)
        if fitting:
            return classes[fitting[0]]
    raise AssertionError(f"{family} declares routers and has no model")


def tiny_config(family: str, **overrides: Any) -> PreTrainedConfig:
    """Return the smallest config of a family under which all of it runs."""
    config_class: Any = model_class(family).config_class
    known = {field.name for field in fields(config_class)} | set(config_class.attribute_map)
    chosen = {name: value for name, value in SIZES.items() if name in known}
    config: PreTrainedConfig = config_class(**{**chosen, **SPECIAL.get(family, {}), **overrides})
    return config


def tiny_model(family: str, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """Return a tiny random model of a family, in evaluation mode, its router's biases moved off zero."""
    torch.manual_seed(seed)
    model = model_class(family)(tiny_config(family, **overrides))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if re.search(r"correction_bias|expert_bias|balancing_biases", name):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.3)
    model.train(False)
    return model
