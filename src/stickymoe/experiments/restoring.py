"""The trainer of a run: a checkpoint's weights go back into the model the way they came out of it."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from stickymoe.model import StickyMoEForCausalLM
from stickymoe.model.checkpoint import checkpoint_errors, load_report, require_its_own_weights
from stickymoe.training import StickyTrainer
from stickymoe.training.quiet import without_progress_bars


class RunTrainer(StickyTrainer):
    """`StickyTrainer` that resumes models whose experts are one tensor in memory and many in a file.

    transformers' Trainer loads a checkpoint name by name: it would leave the experts of such a model as they were
    drawn, and only warn.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Load by the model's own rules; anything missing, left over or of another shape is an error."""
        target = self.model if model is None else model
        if not isinstance(target, PreTrainedModel) or isinstance(target, StickyMoEForCausalLM):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        kind: Any = type(target)
        with checkpoint_errors(resume_from_checkpoint), load_report(shown=False), without_progress_bars():
            saved, info = kind.from_pretrained(
                resume_from_checkpoint,
                dtype=target.dtype,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        require_its_own_weights(resume_from_checkpoint, info, ignore_mismatched_sizes=False)
        target.load_state_dict(saved.state_dict())
