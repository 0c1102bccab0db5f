"""`StickyTrainer`: transformers' Trainer with the objective, an honest log, and checkpoints one can rely on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PrinterCallback

from stickymoe.data import collate_chunks
from stickymoe.training.accumulation import count_targets
from stickymoe.training.arguments import StickyArguments
from stickymoe.training.callbacks import LogFile, Progress, ProgressReport
from stickymoe.training.collapse import CollapseAlarm
from stickymoe.training.curves import curves_of
from stickymoe.training.finite import require_finite
from stickymoe.training.fitting import require_fitting
from stickymoe.training.meter import summarise_steps
from stickymoe.training.mixin import StickyTrainerMixin
from stickymoe.training.model_inputs import fitted_inputs
from stickymoe.training.own_aux import own_aux_coefficient, own_aux_loss
from stickymoe.training.reliable import ReliableTrainer
from stickymoe.training.sticky_objective import StickyObjective


class StickyTrainer(StickyTrainerMixin, ReliableTrainer):
    """Trains any MoE language model on cross-entropy plus an objective on its routing.

        loss = CE + sum over terms of coefficient * term

    Cross-entropy and the terms that are means over tokens or pairs are normalised by the counts of the whole step, all
    micro-batches and ranks together: 1 x 16 and 4 x 4 give the same gradient, ragged padding or not. `load_balancing`
    and `reuse` are no means; theirs is the value of each micro-batch over all ranks, averaged over the micro-batches.

    A batch may carry `pair_document_ids`: documents at whose borders pairs and windows of the terms end, though the
    model, which never sees them, attends across.

    Batches are those of `collate_chunks`, or have `labels` at their own positions. A model of transformers that is not
    told of documents gets them as positions that restart; where padding is beside them, its rows are packed into one.

    In evaluation mode the loss is cross-entropy alone. `<output_dir>/log.jsonl` gets a row every `logging_steps` and
    before every checkpoint. SIGINT and SIGTERM save and raise `Interrupted`.

    Args:
        model: The reference model, or any whose routing can be captured (docs/models.md).
        args: Settings.
        train_dataset: Rows for the collator, drawn without replacement each epoch in an order given by `args.seed`.
        eval_dataset: Rows for `evaluate`.
        data_collator: Makes a batch of rows; `collate_chunks` if not given.
        progress: Called as `progress(step, total_steps, last_log_row)` at the start and after every step.
        kwargs: Further arguments of transformers' Trainer.
    """

    args: StickyArguments

    def __init__(
        self,
        model: nn.Module,
        args: StickyArguments,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        *,
        data_collator: Any = collate_chunks,
        progress: Progress | None = None,
        **kwargs: Any,
    ) -> None:
        objective = StickyObjective(args.build_objective(across_ranks=args.world_size > 1))
        require_fitting(getattr(model, "config", None), objective.objective.coefficients, args.layers_per_pool)
        super().__init__(
            model,
            args,
            data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            objective=objective,
            **kwargs,
        )
        self.remove_callback(PrinterCallback)
        self._alarm = CollapseAlarm(args.collapse_share, args.collapse_steps)
        self._log_file = LogFile()
        self.add_callback(self._log_file)
        if progress is not None:
            self.add_callback(ProgressReport(progress, self._log_file))

    def coefficient_scale(self, step: int) -> float:
        """Return the factor on the locality coefficients at `step`, counted from 0."""
        return self.args.coefficient_scale(step)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train to the end, with fresh figures; see `ReliableTrainer.train`."""
        self._alarm = CollapseAlarm(self.args.collapse_share, self.args.collapse_steps)
        return super().train(*args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[dict[str, Any]], Tensor | int | None]:
        """Draw the micro-batches of a step and count their targets, over all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, count_targets(batches, device) if batches else None

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Evaluate a batch; its targets go by the name that it has for them."""
        self.label_names = [name for name in ("shift_labels", "labels") if name in inputs][:1]
        return super().prediction_step(model, inputs, *args, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return cross-entropy and, in training mode, the objective's terms beside it."""
        inputs = fitted_inputs(self._unwrapped_model(), inputs)
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        aux = own_aux_loss(outputs)
        if aux is not None and not model.training and outputs.get("loss") is not None:
            loss = loss - own_aux_coefficient(self._unwrapped_model()) * self._loss_scale(num_items_in_batch) * aux
        return (loss, outputs) if return_outputs else loss

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        """Look at the step before anything is logged or saved: a poisoned state must not reach the disk."""
        if self.control.should_save:
            self.control.should_log = True  # so that a resumed run's rows cover the same steps
        self._close_step(grad_norm)
        due = self.control.should_log or self.control.should_save
        if due or (self.args.world_size == 1 and self.args.device.type == "cpu"):
            self._read_meter()
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)

    def _read_meter(self) -> None:
        batches: Any = self.callback_handler.train_dataloader
        for step in self._meter.read():
            require_finite(step, self.args, batches_per_epoch=len(batches))
            if self.is_world_process_zero():
                self._alarm.update(step.step, step.load, step.tokens)
            self._interval.append(step)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Complete a training row with every term and the measures of routing, and write it to the log file."""
        if "loss" in logs and self._interval:
            row = summarise_steps(self._interval)
            self._interval = []
            scale = self.args.coefficient_scale(self.state.global_step - 1)
            told = {"learning_rate": logs["learning_rate"], "grad_norm": logs.get("grad_norm")}
            row = {"step": self.state.global_step, "epoch": self.state.epoch, **row, **told, "coefficient_scale": scale}
            if self.is_world_process_zero():
                self._log_file.write(self.run_folder, row)
            logs |= curves_of(row, self.sticky.layer_names)
        super().log(logs, start_time)
