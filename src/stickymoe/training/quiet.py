"""Keeps transformers from drawing on the terminal; the model room needs it too, and has it."""

from stickymoe.model.quiet import without_progress_bars

__all__ = ["without_progress_bars"]
