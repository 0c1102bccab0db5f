"""Ctrl-C and SIGTERM: finish the step, save, and say how to go on."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stickymoe.core.errors import StickyMoEError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(StickyMoEError):
    """Training was stopped by a signal, after its state had been saved.

    Attributes:
        signal_number: The signal; a shell expects the exit code 128 + this.
        step: The last step that was trained.
        checkpoint: Where it was saved.
    """

    def __init__(self, signal_number: int, step: int, checkpoint: Path) -> None:
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name} after step {step}, saved in {checkpoint}; resume the run to go on")
        self.signal_number = signal_number
        self.step = step
        self.checkpoint = checkpoint


class StopSignals(TrainerCallback):
    """While entered, a first SIGINT or SIGTERM saves and stops at the end of the step; a second one kills at once.

    Outside the main thread Python allows no handlers, so signals then do what they did before.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        """Take the signals over."""
        self.received = None
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signals back."""
        self._restore()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Ask for a checkpoint and the end of training if a signal has come, to this rank or another."""
        if args.world_size > 1 and state.global_step % state.logging_steps == 0:
            self._agree(args.device)
        if self.received is not None and (args.world_size == 1 or state.global_step % state.logging_steps == 0):
            control.should_save = True
            control.should_training_stop = True
        return control

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _agree(self, device: torch.device) -> None:
        """Let all ranks stop at the same step, or the first one would wait for the others for ever."""
        signal_number = torch.tensor(self.received or 0, device=device)
        dist.all_reduce(signal_number, op=dist.ReduceOp.MAX)
        self.received = int(signal_number) or None
