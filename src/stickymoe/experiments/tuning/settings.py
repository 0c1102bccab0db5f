"""`TuneSettings`: everything that determines a tuning, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least, require_one_of
from stickymoe.data.encoding import LossOn
from stickymoe.experiments.tuning.objectives import choose_objective
from stickymoe.losses import Objective
from stickymoe.losses.symmetric_kl import REMOE_LAGS
from stickymoe.losses.working_set import WINDOW


@dataclass(frozen=True)
class TuneSettings:
    """How routers are tuned.

    Args:
        objective: Name of the objective; see `OBJECTIVES`.
        coefficients: Weight of each term beside cross-entropy.
        learning_rate: At its peak; the objective's if not given.
        tokens: Tokens to train on, for each arm.
        sequence_length: Tokens a row, >= 2; 512, or the model's positions where these are fewer, if not given.
        batch_size: Rows a micro-batch.
        accumulation: Micro-batches a step.
        warmup_share: Share of the steps over which the locality terms, and the learning rate, grow from 0.
        lags: Distances of the lag term.
        working_set_window: Tokens of each working set.
        packed: Whether rows are filled with documents one after the other, or each is padded on its own.
        loss_on: Whether all tokens are targets, or the assistant's alone.
        lora: Rank of adapters on the attention projections; 0 for none.
        control: Whether the same steps are also trained on cross-entropy alone.
        evaluation_tokens: Held-out tokens to measure on, at most.
        evaluation_batch: Rows a pass there.
        checkpoint_every: Steps.
        activation_checkpointing: Whether activations are computed again in the backward pass.
        seed: Draws the order of the text.

    Raises:
        SettingError: A setting breaks its rule.
    """

    objective: str
    coefficients: dict[str, float]
    learning_rate: float
    tokens: int
    sequence_length: int | None = None
    batch_size: int = 1
    accumulation: int = 8
    warmup_share: float = 0.1
    lags: list[int] = field(default_factory=lambda: list(REMOE_LAGS))
    working_set_window: int = WINDOW
    packed: bool = True
    loss_on: LossOn = "all"
    lora: int = 0
    control: bool = True
    evaluation_tokens: int = 32_768
    evaluation_batch: int = 4
    checkpoint_every: int = 100
    activation_checkpointing: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every rule, the objective's too."""
        for name, least in (
            ("tokens", 1),
            ("batch_size", 1),
            ("accumulation", 1),
            ("evaluation_tokens", 2),
            ("evaluation_batch", 1),
            ("checkpoint_every", 1),
            ("lora", 0),
            ("seed", 0),
        ):
            require_at_least(f"tune.{name}", getattr(self, name), least)
        if self.sequence_length is not None:
            require_at_least("tune.sequence_length", self.sequence_length, 2, "neighbours are compared")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise SettingError.broken("tune.learning_rate", "a finite number > 0", self.learning_rate)
        if not 0 <= self.warmup_share <= 1:
            raise SettingError.broken("tune.warmup_share", "in [0, 1]", self.warmup_share)
        choose_objective(self.objective)
        require_one_of("tune.loss_on", self.loss_on, ["all", "assistant"])
        Objective(self.coefficients, lags=self.lags, working_set_window=self.working_set_window)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON takes them."""
        return asdict(self)
