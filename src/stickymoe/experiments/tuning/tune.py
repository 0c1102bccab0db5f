"""`tune`: a trained model's routers, tuned for locality beside a control of equal budget, and a proof of what moved."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stickymoe.capture.opening import OpenedModel
from stickymoe.core.errors import SettingError
from stickymoe.data.samples import Samples
from stickymoe.experiments.tuning.folder import TuneFolder
from stickymoe.experiments.tuning.measured import Measured
from stickymoe.experiments.tuning.proof import Proof
from stickymoe.experiments.tuning.run import TuneRun
from stickymoe.experiments.tuning.settings import TuneSettings
from stickymoe.experiments.tuning.text import Report


@dataclass(frozen=True)
class TuneResult:
    """What a tuning found.

    Attributes:
        arms: Measured models by name: `baseline`, `control` unless it was left out, `tuned`.
        proof: What changed and what did not.
        content: Everything, as `tuning.json` holds it.
        folder: Where it all is.
    """

    arms: dict[str, Measured]
    proof: Proof
    content: dict[str, Any]
    folder: Path


def tune(
    opened: OpenedModel,
    samples: Samples,
    out: Path | str,
    settings: TuneSettings,
    *,
    resume: bool = False,
    save_model: bool = True,
    say: Callable[[str], None] = lambda line: None,
    progress: Report = lambda what, done, total: None,
) -> TuneResult:
    """Tune a model's routers, and measure it before and after, and beside a control.

    The baseline is measured. The control trains the same parameters on the same batches in the same order at the same
    learning rates with cross-entropy alone; then, from the same start, the objective is trained. The model's own load
    balancing is off in both. `out` gets a folder for each of the three with its trace and trained parameters,
    `tuning.json` with all that was found, and the tuned model.

    Args:
        opened: The model; its routers are changed in place, and end as tuned.
        samples: The text.
        out: A new folder, or, resuming, the one to go on with.
        settings: How.
        resume: Whether to go on where an earlier call with the same arguments was stopped.
        save_model: Whether the tuned model is written to `out/model`.
        say: Called with each line that a user should read on the way.
        progress: Called as `progress(description, done, total)`.

    Raises:
        SettingError: A setting does not fit the model, or `out` is taken, or was begun with other settings.
        DataError: The text cannot be used.
        Interrupted: A signal came; the state was saved.
        TrainingError: The loss is not finite, or something changed that was not to.
        StorageError: The disk refuses a file.
    """
    ranks = os.environ.get("WORLD_SIZE", "1")
    if ranks != "1":
        raise SettingError.broken(
            "WORLD_SIZE", "1, since tuning runs in one process", ranks, "start it without torchrun"
        )
    device = opened.model.device
    if device.type == "cuda" and device.index not in (None, 0):
        rule = "cpu or the first GPU, which is where the Trainer trains"
        raise SettingError.broken("device", rule, str(device), "set CUDA_VISIBLE_DEVICES to choose another")
    run = TuneRun(TuneFolder(Path(out), resume=resume), opened, samples, settings, say, progress)
    return TuneResult(*run.everything(save_model), Path(out))
