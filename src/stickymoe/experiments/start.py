"""A run that begins where another ended, and one that trains its routers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from stickymoe.capture.opening.place import find_place
from stickymoe.capture.opening.weights import read_weights
from stickymoe.core.errors import CheckpointError, SettingError, TrainingError
from stickymoe.core.files import sha256_of
from stickymoe.data import Corpus
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.run_folder import RECIPE_FILE, WEIGHTS_FILE, model_folder, recipe_of
from stickymoe.experiments.run_model import load_model, load_tokenizer
from stickymoe.training import fingerprint, train_routers_only
from stickymoe.training.architecture import require_same_architecture


def start_of(recipe: Recipe, folder: Path) -> Path | None:
    """Return the run that `recipe`, trained in `folder`, begins with; None if it begins anew.

    A plain name is a run in the folder beside; anything else is a path.

    Raises:
        CheckpointError: There is no finished run.
        SettingError: It is the run itself.
    """
    name = recipe.training.start_from
    if name is None:
        return None
    start = folder.resolve().parent / name if Path(name).name == name else Path(name).expanduser()
    if start.resolve() == folder.resolve():
        raise SettingError.broken("training.start_from", "another run than the one it is for", name)
    try:
        model_folder(start)
    except CheckpointError as error:
        raise CheckpointError(f"training.start_from must be a finished run, got {name!r}; {error}") from None
    return start


def begin_with(model: PreTrainedModel, start: Path, corpus: Corpus) -> dict[str, Any]:
    """Give the model the weights of the run `start`, and return which those were, for the record.

    Raises:
        CheckpointError: They are damaged, of another shape, or know other tokens.
    """
    place = model_folder(start)
    require_same_architecture(place, model.config.to_dict())
    if load_tokenizer(start).get_vocab() != corpus.tokenizer.get_vocab():
        raise CheckpointError(
            f"{start} was trained on other tokens than those of {corpus.name}; start from another run"
        )
    model.load_state_dict(load_model(start).state_dict())
    recipe = recipe_of(start).fingerprint() if (start / RECIPE_FILE).exists() else None
    return {"run": start.name, "recipe": recipe, "sha256": sha256_of(place / WEIGHTS_FILE)}


def pretrained_facts(name: str) -> dict[str, Any]:
    """Return which weights a pretrained model brings, for the record.

    Raises:
        CheckpointError: There are none.
    """
    files = read_weights(find_place(name).folder).files
    return {"pretrained": name, "sha256": {file.name: sha256_of(file) for file in files}}


class OnlyRouters:
    """Freezes all of a model but its routers, and proves afterwards that nothing else has changed."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Freeze, and note the hash of what is frozen."""
        self._model = model
        self._trained = train_routers_only(model)
        self._before = fingerprint(model, without=self._trained)

    def proven(self) -> dict[str, Any]:
        """Return the hash of the frozen weights and the names of the others, for the record.

        Raises:
            TrainingError: A frozen weight has changed.
        """
        after = fingerprint(self._model, without=self._trained)
        if after != self._before:
            raise TrainingError(f"weights outside the routers changed: hash {self._before} before, {after} after")
        return {"sha256": after, "trained": self._trained}
