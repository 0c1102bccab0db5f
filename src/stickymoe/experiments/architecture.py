"""Any MoE language model of transformers as the model of a recipe: its config checked key by key."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from functools import cache
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError, StrictDataclassFieldValidationError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, model_type_to_module_name
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from stickymoe.capture.families import FAMILIES
from stickymoe.capture.tiny import families
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest, require_one_of
from stickymoe.experiments.recipe import EXPERT_COUNTS

# What the corpus' tokenizer decides
_OF_THE_TOKENIZER = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
_READ_IF_THERE = re.compile(r'getattr\((?:self\.)?config, "(\w+)"')


@cache
def architectures() -> tuple[str, ...]:
    """Return the model types of all causal MoE language models of transformers whose routing can be captured."""
    found = []
    for kind, class_name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        family = model_type_to_module_name(kind)
        refused = family in FAMILIES and FAMILIES[family].refused
        if str(class_name).endswith("ForCausalLM") and family in families() and not refused:
            found.append(kind)
    return tuple(sorted(found))


def model_class(architecture: str) -> type[PreTrainedModel]:
    """Return the language model's class of an architecture.

    Raises:
        SettingError: There is none, or its routing cannot be captured; the nearest is named.
    """
    require_one_of("model.architecture", architecture, architectures())
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[architecture]]
    kind: type[PreTrainedModel] = found
    return kind


@cache
def settings_of(architecture: str) -> frozenset[str]:
    """Return the keys that a recipe may give for an architecture.

    They are its config's own fields, their other names, and what the model reads if it is there (as `head_dim`).
    """
    kind: Any = model_class(architecture)
    of_all = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    own = {field.name for field in dataclasses.fields(kind.config_class)} | set(kind.config_class.attribute_map)
    read = set(_READ_IF_THERE.findall(inspect.getsource(sys.modules[kind.__module__])))
    return frozenset((own | read) - of_all - set(_OF_THE_TOKENIZER))


def architecture_config(
    architecture: str,
    settings: dict[str, Any],
    *,
    vocab_size: int,
    end_of_text: int | None = None,
    positions: int,
) -> PreTrainedConfig:
    """Return an architecture's config.

    Args:
        architecture: One of `architectures()`.
        settings: What the recipe says; the rest is the class' default.
        vocab_size: Tokens the tokenizer knows.
        end_of_text: The token that begins and ends a text; none pads, since a padding token would not be learned.
        positions: What `max_position_embeddings` is where the settings do not say.

    Raises:
        SettingError: A key is unknown (the nearest is named), given twice, of the wrong type, or breaks a rule.
    """
    config_class: Any = model_class(architecture).config_class
    _require_known(architecture, settings, config_class.attribute_map)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    given = {name: _as_float(value, fields.get(name)) for name, value in settings.items()}
    ids = {"bos_token_id": end_of_text, "eos_token_id": end_of_text, "pad_token_id": None}
    known = fields.keys() | config_class.attribute_map
    given |= {name: value for name, value in {"vocab_size": vocab_size, **ids}.items() if name in known}
    if "max_position_embeddings" in known:
        given.setdefault("max_position_embeddings", positions)
    try:
        config: PreTrainedConfig = config_class(**given)
    except StrictDataclassFieldValidationError as error:
        raise _wrong_type(error, given, fields) from error
    except (StrictDataclassError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise no_model(architecture, error) from error
    _require_enough_experts(config)
    return config


def empty_model(architecture: str, config: PreTrainedConfig) -> PreTrainedModel:
    """Return the model of a config without memory for its weights, to be counted.

    Raises:
        SettingError: The class refuses the config.
    """
    try:
        with torch.device("meta"):
            return model_class(architecture)(config)
    except Exception as error:  # whatever a constructor stumbles over
        raise no_model(architecture, error) from error


def no_model(architecture: str, error: Exception) -> SettingError:
    """Return the error for settings that an architecture cannot be built or run with."""
    cause = error.__cause__ if isinstance(error, StrictDataclassError) and error.__cause__ is not None else error
    reason = " ".join(str(cause).split()) or type(cause).__name__
    return SettingError(f"the table [model] makes no {architecture} model: {reason}; change its sizes")


def _require_known(architecture: str, settings: dict[str, Any], other_names: dict[str, str]) -> None:
    known = settings_of(architecture)
    for name in settings:
        if name in _OF_THE_TOKENIZER:
            raise SettingError(f"model.{name} is the tokenizer's to say; leave it out")
        if name not in known:
            hint = nearest(name, known) or f"it knows {', '.join(sorted(known))}"
            raise SettingError(f"recipe key model.{name} is no setting of {architecture}; {hint}")
        same = other_names.get(name)
        if same in settings:
            raise SettingError(f"model.{name} and model.{same} are the same setting of {architecture}; leave one out")


def _as_float(value: Any, field: dataclasses.Field[Any] | None) -> Any:
    """Take 1 for 1.0 where only a float will do."""
    wants_float = field is not None and field.type in (float, float | None)
    return float(value) if wants_float and type(value) is int else value


def _wrong_type(
    error: StrictDataclassFieldValidationError, given: dict[str, Any], fields: dict[str, Any]
) -> SettingError:
    name = str(error).partition("'")[2].partition("'")[0]
    wanted = fields[name].type if name in fields else None
    rule = f"of type {wanted.__name__ if isinstance(wanted, type) else wanted}"
    return SettingError.broken(f"model.{name}", rule, given.get(name))


def _require_enough_experts(config: PreTrainedConfig) -> None:
    top_k, experts = getattr(config, "num_experts_per_tok", None), num_experts_of(config)
    if isinstance(top_k, int) and experts is not None and not 1 <= top_k <= experts:
        raise SettingError.broken(
            "model.num_experts_per_tok", f"in [1, {experts}], the number of experts", top_k, "lower it or add experts"
        )


def num_experts_of(config: PreTrainedConfig) -> int | None:
    """Return how many experts a layer has by its config, whatever that calls them; None where it does not say."""
    for name in EXPERT_COUNTS:
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    return None
