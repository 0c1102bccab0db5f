"""`ReliableTrainer`: a Trainer whose checkpoints are whole or absent, that resumes exactly and stops politely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn
from transformers import Trainer
from transformers.trainer import TRAINING_ARGS_NAME

from stickymoe.core.errors import SettingError
from stickymoe.core.files import whole_file
from stickymoe.model.quiet import without_progress_bars
from stickymoe.training import checkpoints
from stickymoe.training.architecture import require_same_architecture
from stickymoe.training.interrupts import Interrupted, StopSignals
from stickymoe.training.memory import keep_freed_memory
from stickymoe.training.restoring import RestoresExperts


class ReliableTrainer(RestoresExperts, Trainer):
    """Keeps the promises about checkpoints; what is trained is the subclass' affair.

    A kill at any moment costs the steps since the last checkpoint and nothing else: resumed, the run ends with the
    weights it would have had, bit for bit on a CPU with the same number of threads.
    """

    def __init__(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
        self._own_use_cache = getattr(getattr(model, "config", None), "use_cache", None)
        self._signals = StopSignals()
        self._saved_step: int | None = None
        super().__init__(model, *args, **kwargs)
        self.add_callback(self._signals)

    @property
    def run_folder(self) -> Path:
        """Where the run's checkpoints lie."""
        return Path(str(self.args.output_dir))

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train to the end.

        Args:
            resume_from_checkpoint: A checkpoint to go on from; True for the newest good one of `output_dir`, or the
                beginning where there is none.
            args: See transformers' Trainer.
            kwargs: See transformers' Trainer.

        Raises:
            Interrupted: A signal came; the state was saved.
            TrainingError: The loss or the gradient is not finite.
            CheckpointError: The checkpoint is damaged or of another architecture.
            StorageError: The disk is full; earlier checkpoints are intact.
            SettingError: `output_dir` holds another run's checkpoints and nothing says to resume it.
        """
        checkpoint = self._resume_point(resume_from_checkpoint)
        if self.args.device.type == "cpu":
            keep_freed_memory()
        self._saved_step = None
        config = getattr(self.model, "config", None)
        try:
            with self._signals:
                result = super().train(None if checkpoint is None else str(checkpoint), *args, **kwargs)
        finally:
            if config is not None and self._own_use_cache is not None:
                config.use_cache = self._own_use_cache
        if self._signals.received is not None:
            step = self.state.global_step
            raise Interrupted(self._signals.received, step, self.run_folder / f"checkpoint-{step}")
        return result

    def _resume_point(self, asked: str | bool | None) -> Path | None:
        if not asked:
            if any((path / checkpoints.MANIFEST).exists() for path in checkpoints.checkpoints_in(self.run_folder)):
                rule = "a folder without checkpoints when a run starts"
                way_out = "resume that run or name another folder"
                raise SettingError.broken("training.output_dir", rule, str(self.run_folder), way_out)
            return None
        if asked is True:
            checkpoint = checkpoints.newest_good_checkpoint(self.run_folder)
        else:
            checkpoint = Path(asked)
            checkpoints.verify(checkpoint)
        config = getattr(self.model, "config", None)
        if checkpoint is not None and config is not None:
            require_same_architecture(checkpoint, config.to_dict())
        return checkpoint

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Train an epoch, unless the checkpoint was the last step's: transformers would train one step more."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Save checkpoint-N whole or not at all, then let old ones go."""
        if self._saved_step == self.state.global_step:
            return  # the end of an epoch can fall on a step that has been saved
        run = Path(self._get_output_dir(trial=trial))
        folder = run / f"checkpoint-{self.state.global_step}"
        keep, self.args.save_total_limit = self.args.save_total_limit, None  # rotation has to wait for the seal
        try:
            with checkpoints.whole_checkpoint(folder) if self.args.should_save else nullcontext():
                self.accelerator.wait_for_everyone()
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
        finally:
            self.args.save_total_limit = keep
        self._saved_step = self.state.global_step
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            checkpoints.rotate(run, keep, also_keep=Path(best) if best else None)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save model and settings; the settings as JSON, since nothing of ours is pickled."""
        folder = Path(output_dir or self.run_folder)
        with self._config_as_it_came(), without_progress_bars():
            super()._save(str(folder), state_dict)
        if self.args.should_save:
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)
            with whole_file(folder / "training_arguments.json") as temporary:
                temporary.write_text(str(self.args.to_json_string()) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]

    @contextmanager
    def _config_as_it_came(self) -> Iterator[None]:
        """The Trainer turns the model's cache off while it trains; a saved model has its own setting."""
        config: Any = getattr(self.model, "config", None)
        if config is None or self._own_use_cache is None:
            yield
            return
        during, config.use_cache = config.use_cache, self._own_use_cache
        try:
            yield
        finally:
            config.use_cache = during
