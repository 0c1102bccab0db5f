"""The model of a run: made from a recipe, saved in one step, loaded with every fault named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast, set_seed

from stickymoe.capture.opening import open_model
from stickymoe.capture.opening.configuration import read_config
from stickymoe.capture.opening.place import find_place
from stickymoe.capture.opening.tokenizer import load_tokenizer as read_tokenizer
from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.core.files import storage_errors, whole_folder
from stickymoe.experiments.architecture import architecture_config, empty_model, model_class
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.run_folder import model_folder
from stickymoe.experiments.trial import require_memory, require_running
from stickymoe.losses import Objective
from stickymoe.model import ROUTERS, StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.model.quiet import without_progress_bars
from stickymoe.training.fitting import require_fitting

LEAST_POSITIONS = 256


def model_config(recipe: Recipe, vocab_size: int, end_of_text: int | None = None) -> PreTrainedConfig:
    """Return the shape a recipe asks for; it is a `StickyMoEConfig` where the recipe names no architecture.

    Args:
        recipe: What it is to be.
        vocab_size: Tokens the tokenizer knows; a pretrained model has its own vocabulary.
        end_of_text: The token that ends a text, for an architecture's config.

    Raises:
        SettingError: It breaks a rule, is too short for the recipe's sequences, or contradicts its objective.
        CheckpointError: A pretrained model cannot be found or used.
    """
    table, length = recipe.model, recipe.data.sequence_length
    positions = max(LEAST_POSITIONS, length)
    config: PreTrainedConfig
    if table.pretrained is not None:
        config = read_config(find_place(table.pretrained).folder)
    elif table.architecture is not None:
        config = architecture_config(
            table.architecture, table.settings, vocab_size=vocab_size, end_of_text=end_of_text, positions=positions
        )
    else:
        config = _reference_config(table.settings, vocab_size, positions)
    room = positions_of(config)
    if room is not None and room < length:
        rule = f"<= model.max_position_embeddings ({room})"
        raise SettingError.broken("data.sequence_length", rule, length, "lower it or raise the other")
    _require_one_intent(recipe, config)
    return config


def pretrained_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of a recipe's pretrained model; None where the recipe trains from scratch.

    Raises:
        CheckpointError: There is none, or none that says how it cuts text.
    """
    if recipe.model.pretrained is None:
        return None
    folder = find_place(recipe.model.pretrained).folder
    tokenizer = read_tokenizer(folder, read_config(folder))
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise CheckpointError(f"the tokenizer in {folder} must have a tokenizer.json, got {type(tokenizer).__name__}")
    return tokenizer


def positions_of(config: PreTrainedConfig) -> int | None:
    """Return how many tokens a model can read, None where its config sets no bound."""
    found = getattr(config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) else None


def layers_per_pool(config: PreTrainedConfig) -> int:
    """Return how many adjacent layers share their experts: more than one only in the reference model."""
    return config.layers_per_pool if isinstance(config, StickyMoEConfig) else 1


def _reference_config(shape: dict[str, Any], vocab_size: int, positions: int) -> StickyMoEConfig:
    preset = shape.pop("preset", None)
    shape["vocab_size"] = vocab_size
    shape.setdefault("max_position_embeddings", positions)
    return StickyMoEConfig.preset(preset, **shape) if preset else StickyMoEConfig(**shape)


def _require_one_intent(recipe: Recipe, config: PreTrainedConfig) -> None:
    """Refuse settings of two tables that cannot both be meant."""
    objective, length = recipe.objective, recipe.data.sequence_length
    windows: dict[str, int | None] = {}
    if isinstance(config, StickyMoEConfig):
        windows = {"model.router_window": config.router_window, "model.router_span": config.router_span}
    if objective.anchor > 0:
        windows["objective.window"] = objective.window
    for name, window in windows.items():
        if window is not None and window > length:
            raise SettingError.broken(name, f"<= data.sequence_length ({length})", window, "no sequence is longer")
    if recipe.model.pretrained is not None and recipe.data.tokenizer != "auto":
        rule = "'auto' with model.pretrained, which brings its own"
        raise SettingError.broken("data.tokenizer", rule, recipe.data.tokenizer)
    if recipe.model.pretrained is not None and recipe.training.start_from is not None:
        rule = "left out beside model.pretrained, which brings the weights"
        raise SettingError.broken("training.start_from", rule, recipe.training.start_from)
    coefficients, shared = objective.coefficients(), layers_per_pool(config)
    Objective(coefficients, layers_per_pool=shared, allow_unshared=objective.allow_unshared)
    require_fitting(config, coefficients, shared)
    if (
        recipe.training.train_only == "routers"
        and isinstance(config, StickyMoEConfig)
        and ROUTERS[config.router_type].is_fixed
    ):
        rule = f"'all' with model.router_type {config.router_type!r}, whose routers have nothing to learn"
        raise SettingError.broken("training.train_only", rule, "routers")


def build_model(recipe: Recipe, vocab_size: int, end_of_text: int | None = None) -> PreTrainedModel:
    """Return the model a recipe begins with: freshly initialised, where the seed decides its weights, or pretrained.

    Raises:
        SettingError: The shape breaks a rule, is too large for the memory there is, or does not run.
        CheckpointError: A pretrained model cannot be used.
        CaptureError: The routing of an architecture cannot be captured.
    """
    table = recipe.model
    if table.pretrained is not None:
        model = open_model(table.pretrained, device="cpu", for_training=True).model
    else:
        config = model_config(recipe, vocab_size, end_of_text)
        if table.architecture is not None:
            require_memory(empty_model(table.architecture, config))
        set_seed(recipe.training.seed)
        kind: Any = StickyMoEForCausalLM if table.architecture is None else model_class(table.architecture)
        model = kind(config)
    if not table.is_reference:
        require_running(model, documents=recipe.data.respect_documents)
    return model


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write model and tokenizer beside their place, then move them there in one step.

    Raises:
        StorageError: The disk refused; nothing is left of the attempt.
    """
    with (
        storage_errors(folder, "the checkpoints are intact", "free some space and add --resume"),
        without_progress_bars(),
        whole_folder(folder) as partial,
    ):
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


def load_model(run: Path) -> PreTrainedModel:
    """Return the trained model of a run folder, on the GPU if there is one, ready to evaluate.

    Raises:
        CheckpointError: There is none, it is damaged, or not one whose routing can be captured.
    """
    folder = model_folder(run)
    try:
        return open_model(folder).model
    except CheckpointError as error:
        if folder == run:
            raise
        way_out = f"delete {folder} and resume the run, which saves it again from the last checkpoint"
        raise CheckpointError(f"{error}, or {way_out}") from error


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
