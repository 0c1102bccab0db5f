"""`StickyTrainer`: transformers' Trainer with the objective, an honest log, and checkpoints one can rely on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PrinterCallback

from stickymoe.core.errors import SettingError
from stickymoe.data import collate_chunks
from stickymoe.losses import Objective
from stickymoe.routing import Routing
from stickymoe.training.accumulation import StepWeights
from stickymoe.training.arguments import StickyArguments
from stickymoe.training.callbacks import LogFile, Progress, ProgressReport
from stickymoe.training.collapse import CollapseAlarm
from stickymoe.training.finite import require_finite
from stickymoe.training.fitting import require_fitting
from stickymoe.training.meter import PER_LAYER, Meter, StepFigures, summarise_steps
from stickymoe.training.reliable import ReliableTrainer


class StickyTrainer(ReliableTrainer):
    """Trains a MoE language model on cross-entropy plus an objective on its routing.

        loss = CE + sum over terms of coefficient * term

    Cross-entropy and the terms that are means over tokens or pairs are normalised by the counts of the whole step, all
    micro-batches and ranks together: 1 x 16 and 4 x 4 give the same gradient, ragged padding or not. `load_balancing`
    and `reuse` are no means; theirs is the value of each micro-batch over all ranks, averaged over the micro-batches.

    A batch may carry `pair_document_ids`: documents at whose borders pairs and windows of the terms end, though the
    model, which never sees them, attends across.

    In evaluation mode the loss is cross-entropy alone. `<output_dir>/log.jsonl` gets a row every `logging_steps` and
    before every checkpoint. SIGINT and SIGTERM save and raise `Interrupted`.

    Args:
        model: A model whose output has `loss` and `routing`.
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
        super().__init__(model, args, data_collator, train_dataset=train_dataset, eval_dataset=eval_dataset, **kwargs)
        self.remove_callback(PrinterCallback)
        self.objective: Objective = args.build_objective(across_ranks=args.world_size > 1)
        require_fitting(getattr(model, "config", None), self.objective.coefficients, args.layers_per_pool)
        self._weights = StepWeights(self.objective)
        self._meter = Meter()
        self._alarm = CollapseAlarm(args.collapse_share, args.collapse_steps)
        self._interval: list[StepFigures] = []
        self._log_file = LogFile()
        self.add_callback(self._log_file)
        if progress is not None:
            self.add_callback(ProgressReport(progress, self._log_file))

    def routing_of(self, outputs: Any, inputs: dict[str, Any]) -> Routing:
        """Return what the routers decided in a forward pass that gave `outputs` for `inputs`."""
        routing: Routing = outputs["routing"]
        return routing

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train to the end, with fresh figures; see `ReliableTrainer.train`."""
        self._meter, self._interval = Meter(), []
        self._alarm = CollapseAlarm(self.args.collapse_share, self.args.collapse_steps)
        return super().train(*args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[dict[str, Any]], Tensor | int | None]:
        """Draw the micro-batches of a step and count what its means divide by, over all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, self._weights.count(batches, device) if batches else None

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return cross-entropy and, in training mode, the objective's terms beside it."""
        pair_documents = inputs.get("pair_document_ids")
        inputs = {name: value for name, value in inputs.items() if name != "pair_document_ids"}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        if model.training:
            if num_items_in_batch is None:
                raise SettingError("a loss in training mode needs num_items_in_batch; call train(), or eval() first")
            routing = self.routing_of(outputs, inputs)
            if pair_documents is not None:
                routing = dataclasses.replace(routing, document_ids=pair_documents)
            result = self.objective(
                routing,
                inputs.get("input_ids"),
                scale=self.args.coefficient_scale(self.state.global_step),
                normalisers=self._weights.normalisers,
                share=1 / self.current_gradient_accumulation_steps,
            )
            self._meter.add(loss.detach(), result.terms, routing.detach())
            loss = loss + result.total
        return (loss, outputs) if return_outputs else loss

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        """Look at the step before anything is logged or saved: a poisoned state must not reach the disk."""
        if self.control.should_save:
            self.control.should_log = True  # so that a resumed run's rows cover the same steps
        if self._meter.has_open_step:
            self._meter.close_step(self.state.global_step, grad_norm)
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
            logs |= _scalars(row)
        super().log(logs, start_time)


def _scalars(row: dict[str, Any]) -> dict[str, float]:
    """Return the row for trackers that draw curves: lists become their mean and one curve a layer."""
    curves: dict[str, float] = {}
    for name, value in row.items():
        if name in PER_LAYER:
            known = {layer: entry for layer, entry in enumerate(value) if entry is not None}
            curves |= {f"{name}/layer_{layer}": entry for layer, entry in known.items()}
            if known:
                curves[name] = sum(known.values()) / len(known)
        elif name not in ("step", "epoch") and value is not None:
            curves[name] = value
    return curves
