"""One short pass before anything is trained, so that an objective which does not fit the model fails at once."""

from __future__ import annotations

from typing import Any

from stickymoe.capture import capture_routing
from stickymoe.data.rows import DocumentRows, collate_rows
from stickymoe.experiments.tuning.arguments import TrustingObjective
from stickymoe.experiments.tuning.reference import FrozenRouters
from stickymoe.experiments.tuning.settings import TuneSettings

TOKENS = 32


def rehearse(model: Any, rows: DocumentRows, settings: TuneSettings) -> None:
    """Run the beginning of a row through model and objective, and forget it.

    Raises:
        SettingError: A term does not fit the model's layers.
        CaptureError: The routing is not seen, or not as the family's adapter expects.
    """
    objective = TrustingObjective(
        settings.coefficients, lags=settings.lags, working_set_window=settings.working_set_window
    )
    batch = collate_rows([{name: values[:TOKENS] for name, values in rows[0].items()}])
    batch = {name: values.to(model.device) for name, values in batch.items()}
    was_training = model.training
    model.train()
    frozen = FrozenRouters(model) if "trust" in objective.coefficients else None
    try:
        with capture_routing(model, fixed_layers=False) as capture:
            model(**batch, use_cache=False)
            if frozen is not None:
                objective.reference = frozen.take
            objective(capture.routing, batch["input_ids"])
    finally:
        if frozen is not None:
            frozen.remove()
        model.train(was_training)
