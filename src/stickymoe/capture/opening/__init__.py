"""Opening a checkpoint: every fault named in one line before weights are loaded, and a model ready to be captured."""

from stickymoe.capture.opening.opened import OpenedModel, open_model

__all__ = ["OpenedModel", "open_model"]
