"""A checkpoint's config.json, and the model it describes without any weight: what cannot be captured ends here."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.families.unknown import HOW_TO
from stickymoe.core.errors import CaptureError, CheckpointError
from stickymoe.core.files import read_json
from stickymoe.core.settings import nearest

DAMAGED = "copy or download it again"
_SPARSE = re.compile(r"moe|expert|router", re.IGNORECASE)


def read_config(folder: Path) -> PreTrainedConfig:
    """Return a checkpoint's configuration, by transformers' own classes; no code of a checkpoint is ever run.

    Raises:
        CheckpointError: It is unreadable, of an unknown type, needs code of its own, or is no causal language model.
    """
    content = read_json(folder / "config.json", CheckpointError, DAMAGED)
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise _unknown(folder, kind, content.get("auto_map"))
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # a config may break rules of any class
        raise CheckpointError(f"{folder / 'config.json'} cannot be read: {_first_line(error)}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise CheckpointError(
            f"{folder} is an encoder-decoder model ({kind}), which does not read a text on; "
            "run it in a loop of your own under stickymoe.capture.capture_routing"
        )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CheckpointError(f"{folder} is of type {kind!r}, of which transformers has no causal language model")
    return config


def outline(config: PreTrainedConfig, folder: Path) -> PreTrainedModel:
    """Return the model that a configuration describes, without memory for its weights.

    Raises:
        CheckpointError: The configuration contradicts itself.
        CaptureError: The model is dense, refused, or has no routers that can be found.
    """
    builder: Any = AutoModelForCausalLM
    try:
        with torch.device("meta"):
            model: PreTrainedModel = builder.from_config(copy.deepcopy(config), trust_remote_code=False)
    except Exception as error:
        raise CheckpointError(f"{folder / 'config.json'} describes no model: {_first_line(error)}") from error
    try:
        find_stacks(model)
    except CaptureError as error:
        if any(_is_sparse(name, module) for name, module in model.named_modules()):
            raise CaptureError(f"{folder}: {error}") from error
        raise CaptureError(
            f"{folder} holds a dense model, {type(model).__name__}: no layer chooses between experts; give a "
            f"Mixture-of-Experts model, or, if it is one, {HOW_TO}"
        ) from error
    return model


def require_choice(config: PreTrainedConfig, name: str) -> None:
    """Refuse a model whose experts serve every token: it opens, but there is nothing to record or to compare.

    Raises:
        CaptureError: It is one, such as the dense control of a sweep.
    """
    text = config.get_text_config()
    experts, chosen = getattr(text, "num_experts", None), getattr(text, "num_experts_per_tok", None) or 1
    if isinstance(experts, int) and isinstance(chosen, int) and experts <= chosen:
        raise CaptureError(
            f"{name} is dense in effect: every token is served by all {experts} experts of each layer, so there is "
            "no choice to look at; give a model that chooses between more"
        )


def _is_sparse(name: str, module: nn.Module) -> bool:
    return bool(_SPARSE.search(type(module).__name__) or _SPARSE.search(name.rpartition(".")[2]))


def _unknown(folder: Path, kind: object, auto_map: object) -> CheckpointError:
    version = transformers.__version__
    if auto_map:
        return CheckpointError(
            f"{folder} (model_type {kind!r}) needs Python code that comes with it, which is never run; use a version "
            f"of transformers that has the class (this is {version}), or load it yourself and attach "
            "stickymoe.capture.capture_routing"
        )
    if not isinstance(kind, str):
        return CheckpointError(f"{folder / 'config.json'} must name its model_type, got {kind!r}")
    hint = nearest(kind, CONFIG_MAPPING.keys())
    way_out = hint or "install a version that does, or load it yourself and attach stickymoe.capture.capture_routing"
    return CheckpointError(f"{folder} is of model_type {kind!r}, which transformers {version} does not know; {way_out}")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) or type(error).__name__
