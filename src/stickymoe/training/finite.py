"""Stops a run whose loss or gradient is no number any more."""

from __future__ import annotations

import math

from stickymoe.core.errors import CheckpointError, TrainingError
from stickymoe.training.arguments import StickyArguments
from stickymoe.training.checkpoints import newest_good_checkpoint
from stickymoe.training.meter import StepFigures


def require_finite(step: StepFigures, args: StickyArguments, batches_per_epoch: int) -> None:
    """Raise unless every loss of the step, and its gradient, is finite.

    Under fp16 a gradient may overflow: the loss scaler skips such a step and goes on.

    Raises:
        TrainingError: Names the step, the batch and the last good checkpoint.
    """
    steps_per_epoch = math.ceil(batches_per_epoch / args.gradient_accumulation_steps)
    epoch, step_in_epoch = divmod(step.step - 1, steps_per_epoch)
    first = step_in_epoch * args.gradient_accumulation_steps
    for place, value in enumerate(step.batch_cross_entropies, start=first + 1):
        if not math.isfinite(value):
            raise _error(f"cross-entropy is {value}", step.step, f"batch {place}", epoch, args)
    last = first + len(step.batch_cross_entropies)
    where = f"batch {last}" if last == first + 1 else f"batches {first + 1} to {last}"
    for name, value in step.terms.items():
        if not math.isfinite(value):
            raise _error(f"{name} is {value}", step.step, where, epoch, args)
    if step.grad_norm is not None and not math.isfinite(step.grad_norm) and not args.fp16:
        raise _error(f"the gradient's norm is {step.grad_norm}", step.step, where, epoch, args)


def _error(what: str, step: int, where: str, epoch: int, args: StickyArguments) -> TrainingError:
    try:
        checkpoint = newest_good_checkpoint(args.output_dir or ".")
    except CheckpointError:
        checkpoint = None
    good = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no good checkpoint yet"
    return TrainingError(
        f"{what} at step {step} ({where} of epoch {epoch + 1}, seed {args.seed}); {good}; lower training.learning_rate "
        "or lengthen training.warmup_steps"
    )
