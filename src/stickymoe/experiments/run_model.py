"""The model of a run: made from a recipe, saved in one step, loaded with every fault named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, set_seed

from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.core.files import storage_errors
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.run_folder import model_folder, read_json
from stickymoe.losses import Objective
from stickymoe.model import ROUTERS, StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.training.fitting import require_fitting
from stickymoe.training.quiet import without_progress_bars

LEAST_POSITIONS = 256


def model_config(recipe: Recipe, vocab_size: int) -> StickyMoEConfig:
    """Return the shape a recipe asks for.

    Raises:
        SettingError: It breaks a rule, is too short for the recipe's sequences, or contradicts its objective.
    """
    shape = recipe.model.model_dump(exclude_none=True)
    preset = shape.pop("preset", None)
    shape["vocab_size"] = vocab_size
    length = recipe.data.sequence_length
    shape.setdefault("max_position_embeddings", max(LEAST_POSITIONS, length))
    if shape["max_position_embeddings"] < length:
        rule = f"<= model.max_position_embeddings ({shape['max_position_embeddings']})"
        raise SettingError.broken("data.sequence_length", rule, length, "lower it or raise the other")
    config = StickyMoEConfig.preset(preset, **shape) if preset else StickyMoEConfig(**shape)
    _require_one_intent(recipe, config)
    return config


def _require_one_intent(recipe: Recipe, config: StickyMoEConfig) -> None:
    """Refuse settings of two tables that cannot both be meant."""
    objective, length = recipe.objective, recipe.data.sequence_length
    windows = {"model.router_window": config.router_window, "model.router_span": config.router_span}
    if objective.anchor > 0:
        windows["objective.window"] = objective.window
    for name, window in windows.items():
        if window is not None and window > length:
            raise SettingError.broken(name, f"<= data.sequence_length ({length})", window, "no sequence is longer")
    coefficients, shared = objective.coefficients(), config.layers_per_pool
    Objective(coefficients, layers_per_pool=shared, allow_unshared=objective.allow_unshared)
    require_fitting(config, coefficients, shared)
    if recipe.training.train_only == "routers" and ROUTERS[config.router_type].is_fixed:
        rule = f"'all' with model.router_type {config.router_type!r}, whose routers have nothing to learn"
        raise SettingError.broken("training.train_only", rule, "routers")


def build_model(recipe: Recipe, vocab_size: int) -> StickyMoEForCausalLM:
    """Return a freshly initialised model of the recipe; the seed decides its weights.

    Raises:
        SettingError: The shape breaks a rule.
    """
    config = model_config(recipe, vocab_size)
    set_seed(recipe.training.seed)
    return StickyMoEForCausalLM(config)


def save_model(model: StickyMoEForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write model and tokenizer beside their place, then move them there in one step.

    Raises:
        StorageError: The disk refused; nothing is left of the attempt.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with (
            storage_errors(folder, "the checkpoints are intact", "free some space and add --resume"),
            without_progress_bars(),
        ):
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def load_model(run: Path) -> StickyMoEForCausalLM:
    """Return the trained model of a run folder, on the GPU if there is one, ready to evaluate.

    Raises:
        CheckpointError: There is none, it is damaged, or it is of another architecture.
    """
    folder = model_folder(run)
    kind = read_json(folder / "config.json").get("model_type")
    if kind != StickyMoEConfig.model_type:
        rule = f"{folder} must hold a model of type {StickyMoEConfig.model_type}, got {kind!r}"
        raise CheckpointError(f"{rule}; give a run of stickymoe train")
    try:
        with without_progress_bars():
            model: Any = StickyMoEForCausalLM.from_pretrained(folder)
    except CheckpointError as error:
        way_out = f"delete {folder} and resume the run, which saves it again from the last checkpoint"
        raise CheckpointError(f"{error}; {way_out}") from error
    loaded: StickyMoEForCausalLM = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return loaded


def load_tokenizer(run: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer saved with a run's model.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    folder = model_folder(run)
    if not (folder / "tokenizer.json").exists():
        raise CheckpointError(f"{folder} holds no tokenizer.json; give a run folder made by stickymoe train")
    try:
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
        return tokenizer
    except Exception as error:  # tokenizers raises bare Exception
        reason = " ".join(str(error).split())
        raise CheckpointError(f"the tokenizer in {folder} cannot be read ({reason}); train the run again") from None
