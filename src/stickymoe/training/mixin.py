"""`StickyTrainerMixin`: gives any subclass of transformers' Trainer an objective on the model's routing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stickymoe.losses import Objective, sum_across_ranks
from stickymoe.model.window_router import scale_bonus
from stickymoe.training.accumulation import PAIR_DOCUMENTS
from stickymoe.training.curves import curves_of
from stickymoe.training.meter import Meter, StepFigures, summarise_steps
from stickymoe.training.own_aux import OwnAuxLoss, own_aux_coefficient, own_aux_loss, weight_in
from stickymoe.training.restoring import RestoresExperts
from stickymoe.training.sticky_objective import StickyObjective

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class StickyTrainerMixin(RestoresExperts, _Base):
    """Adds the terms of an objective to the loss of a Trainer, whatever it trains and however it computes its loss.

        class StickySFTTrainer(StickyTrainerMixin, SFTTrainer): ...

        StickySFTTrainer(model, args=..., train_dataset=..., objective={"consistency": 0.1}).train()

    Terms that are means over tokens or pairs are normalised by the counts of the whole step: the same rows give the
    same gradient however they are split over micro-batches and ranks. `load_balancing` and `reuse` are no means;
    theirs is the value of each micro-batch over all ranks, averaged over the micro-batches. So, here, is the model's
    own load-balancing loss (`output_router_logits=True`), which the Trainer by itself multiplies by the number of
    micro-batches and of ranks, and drops where it smooths labels. Whether the model computes it is left as it was set,
    and so is how a loss function or Trainer of one's own counts it.

    In evaluation mode nothing is added. The log gets, beside the Trainer's own figures, each term unweighted, by itself
    (`consistency`) and by layer (`consistency/layer_3`), the model's own `aux_loss`, measures of routing, and
    `loss_without_terms`. A run that is resumed gets its experts back, see `RestoresExperts`.

    Args:
        args: What the Trainer takes.
        objective: Coefficients of the terms by name, or an `Objective` or `StickyObjective` for all other settings;
            nothing is added if not given.
        kwargs: What the Trainer takes.

    Raises:
        CaptureError: The model's routing cannot be captured.
        SettingError: A coefficient breaks its rule; or, once training begins, batches hold no `input_ids`.
    """

    def __init__(
        self,
        *args: Any,
        objective: StickyObjective | Objective | Mapping[str, float | int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(objective, StickyObjective):
            if not isinstance(objective, Objective):
                objective = Objective(objective, reduce=sum_across_ranks if self.args.world_size > 1 else None)
            objective = StickyObjective(objective)
        self.sticky = objective
        self._own_aux = OwnAuxLoss()
        self._own_aux_weights: dict[int, float] = {}
        assert self.model is not None
        self._capture_from(self.model)
        self._meter = Meter()
        self._interval: list[StepFigures] = []

    def _capture_from(self, model: nn.Module) -> None:
        # Without a coefficient all is for the log, fixed layers too. Compiled, more than one pass breaks the graph.
        keep, nothing_to_move = 1 if self.args.torch_compile else None, not self.sticky.objective.coefficients
        self.sticky.attach(model, keep=keep, fixed_layers=nothing_to_move)
        if not self.args.torch_compile:
            self._own_aux.attach(model)

    def call_model_init(self, trial: Any = None) -> Any:
        """Make the model anew, as `train` does where the Trainer was given `model_init`, and capture from that one."""
        model = super().call_model_init(trial)
        if hasattr(self, "sticky"):
            self._capture_from(model)
        return model

    def coefficient_scale(self, step: int) -> float:
        """Return the factor on the locality coefficients, and on the bonus of window routers, at `step`.

        Steps count from 0. To be overridden for a warm-up.
        """
        return 1.0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train to the end, with fresh figures."""
        self._meter, self._interval = Meter(), []
        return super().train(*args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """Draw the micro-batches of a step and count what its means divide by, over all ranks."""
        batches, targets = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches:
            self.sticky.begin_step(batches, device)
        if isinstance(targets, Tensor):
            targets = targets.clamp(min=1)  # where all labels are masked: else the loss is 0 / 0
        return batches, targets

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the Trainer's loss and, in training mode, the objective's terms beside it."""
        if model.training:
            scale_bonus(self._unwrapped_model(), self.coefficient_scale(self.state.global_step))
        documents = inputs.get(PAIR_DOCUMENTS)
        inputs = {name: value for name, value in inputs.items() if name != PAIR_DOCUMENTS}
        # Some Trainers run the model again for the sake of outputs: they are asked for only where there is no other way
        asked = return_outputs or (self.args.torch_compile and not hasattr(self, "aux_loss_enabled"))
        found: Any = super().compute_loss(model, inputs, return_outputs=asked, num_items_in_batch=num_items_in_batch)
        loss, outputs = found if asked else (found, None)
        if model.training:
            loss = self._with_terms(loss, outputs, documents, num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _with_terms(self, loss: Tensor, outputs: Any, documents: Tensor | None, targets: Tensor | int | None) -> Tensor:
        """Return the loss with the terms, and the model's own load balancing counted once."""
        steps = self.current_gradient_accumulation_steps
        # Where the Trainer will divide by the number of micro-batches, what is the step's share is multiplied by it
        later = 1 if self._is_scaled(targets) else steps
        share = self.sticky.share(scale=self.coefficient_scale(self.state.global_step), document_ids=documents)
        bare, terms = loss, share.terms
        aux = own_aux_loss(outputs) if self.args.torch_compile else self._own_aux.take()
        if aux is not None:
            weight, wanted = self._own_aux_weight(loss, aux, outputs, targets, later / steps)
            bare = loss - weight * aux
            loss = loss + (wanted - weight) * aux
            terms = {**terms, "aux_loss": aux.detach() / steps}
        if share.routings:
            self._meter.add(bare.detach() / later, terms, *share.routings, by_layer=share.by_layer)
        return loss + later * share.total

    def _own_aux_weight(
        self, loss: Tensor, aux: Tensor, outputs: Any, targets: Tensor | int | None, share: float
    ) -> tuple[float, float]:
        """Return with which weight the model's own load balancing is in the loss, and with which it should be.

        The second differs from the first only where it is known why: transformers' Trainer counts it once a micro-batch
        and rank, and not at all where it smooths labels. A loss that somebody else computes is left as it is.
        """
        coefficient = getattr(self, "router_aux_loss_coef", own_aux_coefficient(self._unwrapped_model()))
        counted = coefficient * self._loss_scale(targets)
        steps = self.current_gradient_accumulation_steps
        if self.args.torch_compile:  # what comes out of one graph does not depend on what else comes out of it
            self._own_aux_weights[steps] = 0.0 if outputs.get("loss") is None else counted
        elif steps not in self._own_aux_weights:
            self._own_aux_weights[steps] = weight_in(loss, aux)
        weight = self._own_aux_weights[steps]
        if self.compute_loss_func is None:
            if weight == 0.0 and self.label_smoother is not None:
                return 0.0, coefficient * share
            if math.isclose(weight, counted, rel_tol=1e-2):  # the one measured was rounded to the loss's precision
                return counted, coefficient * share
        return weight, weight

    def _unwrapped_model(self) -> nn.Module:
        model: nn.Module = self.accelerator.unwrap_model(self.model)
        return model

    def _loss_scale(self, targets: Tensor | int | None) -> float:
        """Return what transformers' `compute_loss` multiplies the model's loss by."""
        if self.args.average_tokens_across_devices and self.model_accepts_loss_kwargs and targets is not None:
            return float(self.accelerator.num_processes // self.get_tp_size())
        return 1.0

    def _is_scaled(self, targets: Tensor | int | None) -> bool:
        """Whether the Trainer takes its loss as the micro-batch's share of the step, as its `training_step` does."""
        if self.loss_is_scaled_for_ga is not None:
            return bool(self.loss_is_scaled_for_ga)
        return (self.model_accepts_loss_kwargs and targets is not None) or self.compute_loss_func is not None

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        """Close the step before anything is logged."""
        self._close_step(grad_norm)
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)

    def _close_step(self, grad_norm: Any) -> None:
        if self._meter.has_open_step:
            self._meter.close_step(self.state.global_step, grad_norm)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Complete a training row with every term and the measures of routing."""
        if "loss" in logs:
            self._interval += self._meter.read()
            if self._interval:
                row, self._interval = summarise_steps(self._interval), []
                row["loss_without_terms"] = row.pop("cross_entropy")
                logs |= curves_of(row, self.sticky.layer_names)
        super().log(logs, start_time)
