"""Weights out of a checkpoint into a model that trains, experts too."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedModel

from stickymoe.model.checkpoint import checkpoint_errors, load_report, require_its_own_weights
from stickymoe.model.quiet import without_progress_bars

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class RestoresExperts(_Base):
    """Gives a Trainer the experts back when it resumes.

    Models of transformers hold all experts of a layer in one tensor and save them one by one. Its Trainer loads a
    checkpoint name by name: what it does not find stays as it is, so that a run resumes with untrained experts and a
    warning. Here the model's own way of loading is taken.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        target = self.model if model is None else model
        if not self._restore(resume_from_checkpoint, target):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        if not self._restore(self.state.best_model_checkpoint, self.model):
            super()._load_best_model()

    def _restore(self, folder: str | None, model: Any) -> bool:
        """Load the weights, if this is a whole model in one place; adapters and sharded models are others' affair."""
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if sharded or folder is None or not isinstance(model, PreTrainedModel):
            return False
        if not any(Path(folder).glob("*.safetensors")):
            return False
        restore_weights(model, Path(folder))
        return True


def restore_weights(model: PreTrainedModel, folder: Path) -> None:
    """Overwrite all of a model's weights with those saved in `folder`, each in its own dtype.

    Raises:
        CheckpointError: A weight is missing there or of another shape, or one there is unknown to the model.
    """
    exact = torch.float64 if any(weight.dtype == torch.float64 for weight in model.parameters()) else torch.float32
    settings: dict[str, Any] = {"config": copy.deepcopy(model.config), "dtype": exact, "local_files_only": True}
    with checkpoint_errors(folder), load_report(shown=False), without_progress_bars():
        loaded: Any = type(model).from_pretrained(
            folder, ignore_mismatched_sizes=True, output_loading_info=True, **settings
        )
    saved, told = loaded
    require_its_own_weights(folder, told, ignore_mismatched_sizes=False)
    model.load_state_dict(saved.state_dict())
