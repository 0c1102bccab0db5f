"""`StickyArguments`: the Trainer's settings with this project's defaults, and those of the objective."""

import math
from dataclasses import dataclass, field

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy, SchedulerType

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least
from stickymoe.losses import Objective, sum_across_ranks

FINAL_LEARNING_RATE_SHARE = 0.1


@dataclass
class StickyArguments(TrainingArguments):
    """Settings of a run: all of transformers' `TrainingArguments`, and the objective.

    What differs from transformers: AdamW with decay 0.1 and betas 0.9, 0.95; a linear warm-up, then a cosine to 10 % of
    the peak; `bf16=True` runs on the CPU where there is no GPU; one process uses one GPU (use `torchrun` for more);
    targets are the batch's `shift_labels`; nothing is printed and no progress bar drawn.

    Args:
        objective: Coefficients of the terms beside cross-entropy, by name; see `stickymoe.losses.TERMS`.
        window: Tokens from one anchor to the next, for the anchor term.
        boundary_weight: Weight in [0, 1] of pairs that enter a new sentence or line, in pairwise terms.
        boundary_token_ids: The tokens after which one begins; needed where the weight is below 1.
        layers_per_pool: How many adjacent layers of the model share one pool of experts, which the cross-layer term
            asks for; 1 if none do.
        allow_unshared: Allow the cross-layer term where layers do not share experts.
        report_terms: Terms to be computed for the log alone.
        coefficient_warmup_steps: The locality terms' coefficients, and the bonus of window routers, grow linearly from
            0 over so many steps.
        collapse_share: An expert with a smaller share of the tokens counts as starved, in [0, 1).
        collapse_steps: After so many consecutive starved steps a warning names the expert.

    Raises:
        SettingError: A setting breaks its rule; the message names it `training.X` or `objective.X`.
    """

    objective: dict[str, float] = field(default_factory=dict)
    window: int = 4
    boundary_weight: float = 1.0
    boundary_token_ids: list[int] = field(default_factory=list)
    layers_per_pool: int = 1
    allow_unshared: bool = False
    report_terms: list[str] = field(default_factory=list)
    coefficient_warmup_steps: int = 0
    collapse_share: float = 0.01
    collapse_steps: int = 100

    learning_rate: float = 3e-4
    lr_scheduler_type: SchedulerType | str = SchedulerType.COSINE_WITH_MIN_LR
    warmup_steps: float = 0.1
    weight_decay: float = 0.1
    adam_beta2: float = 0.95
    logging_steps: float = 20
    logging_nan_inf_filter: bool = False
    save_steps: float = 200
    save_total_limit: int | None = 2
    disable_tqdm: bool | None = True
    report_to: str | list[str] | None = field(default_factory=list)
    remove_unused_columns: bool = False
    label_names: list[str] | None = field(default_factory=lambda: ["shift_labels"])
    ddp_find_unused_parameters: bool | None = False

    def __post_init__(self) -> None:
        """Check everything, then let transformers set the device up."""
        self._check()
        if self.bf16 and not torch.cuda.is_available():
            self.use_cpu = True
        if self.lr_scheduler_type == SchedulerType.COSINE_WITH_MIN_LR and self.lr_scheduler_kwargs is None:
            self.lr_scheduler_kwargs = {"min_lr_rate": FINAL_LEARNING_RATE_SHARE}
        self.build_objective()
        try:
            super().__post_init__()  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise SettingError(f"training settings cannot be used: {' '.join(str(error).split())}") from error

    @property
    def n_gpu(self) -> int:
        """At most one GPU a process: routing cannot be gathered from the replicas of `DataParallel`."""
        return min(int(super().n_gpu), 1)

    def build_objective(self, *, across_ranks: bool = False) -> Objective:
        """Return the objective of these settings.

        Args:
            across_ranks: Whether the statistics of terms that are no plain means are summed over all ranks.
        """
        return Objective(
            self.objective,
            window=self.window,
            boundary_weight=self.boundary_weight,
            boundary_token_ids=self.boundary_token_ids,
            layers_per_pool=self.layers_per_pool,
            allow_unshared=self.allow_unshared,
            report=self.report_terms,
            reduce=sum_across_ranks if across_ranks else None,
        )

    def coefficient_scale(self, step: int) -> float:
        """Return the factor on the locality coefficients at `step`, counted from 0."""
        return min(1.0, step / self.coefficient_warmup_steps) if self.coefficient_warmup_steps else 1.0

    def _check(self) -> None:
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            require_at_least(f"training.{name}", getattr(self, name), 1)
        for name in ("warmup_steps", "weight_decay", "max_grad_norm"):
            require_at_least(f"training.{name}", getattr(self, name), 0)
        for name in ("logging_steps", "save_steps", "learning_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise SettingError.broken(f"training.{name}", "a finite number > 0", getattr(self, name))
        for name in ("adam_beta1", "adam_beta2", "collapse_share"):
            if not 0 <= getattr(self, name) < 1:
                raise SettingError.broken(f"training.{name}", "in [0, 1)", getattr(self, name))
        if self.max_steps != -1:
            require_at_least("training.max_steps", self.max_steps, 1, "or -1 to count epochs")
        elif not self.num_train_epochs > 0:
            raise SettingError.broken("training.num_train_epochs", "> 0", self.num_train_epochs)
        require_at_least("objective.coefficient_warmup_steps", self.coefficient_warmup_steps, 0)
        require_at_least("training.collapse_steps", self.collapse_steps, 1)
        if self.save_total_limit is not None and SaveStrategy(self.save_strategy) != SaveStrategy.NO:
            way_out = "with one a damaged checkpoint would end the run"
            require_at_least("training.save_total_limit", self.save_total_limit, 2, way_out)
        if not self.average_tokens_across_devices:
            rule = "true: a step's loss is the mean over all of its tokens"
            raise SettingError.broken("training.average_tokens_across_devices", rule, False)
