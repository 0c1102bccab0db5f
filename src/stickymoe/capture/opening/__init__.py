"""Opening a checkpoint: every fault named in one line before weights are loaded, and a model ready to be captured."""

from stickymoe.capture.opening.configuration import require_choice
from stickymoe.capture.opening.opened import OpenedModel, PreparedModel, open_model, prepare_model

__all__ = ["OpenedModel", "PreparedModel", "open_model", "prepare_model", "require_choice"]
