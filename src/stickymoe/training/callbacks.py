"""Where a training run reports to: its log file and whoever draws the progress."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stickymoe.core.files import storage_errors, whole_file

LOG_FILE = "log.jsonl"

Row = dict[str, Any]
Progress = Callable[[int, int, Row | None], None]


class LogFile(TrainerCallback):
    """Appends one JSON object a row to `<output_dir>/log.jsonl`.

    Training rows hold `cross_entropy`, evaluation rows `eval_loss`. A run that is resumed at step N first drops the
    rows after N, and one that starts anew drops all, so that no step is told twice.
    """

    def __init__(self) -> None:
        self.last_row: Row | None = None
        self._started = time.perf_counter()
        self._seconds_before = 0.0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Drop the rows that this run is going to write again."""
        self.last_row = None
        self._started = time.perf_counter()
        self._seconds_before = 0.0
        path = Path(str(args.output_dir)) / LOG_FILE
        if not state.is_world_process_zero or not path.exists():
            return
        kept = [row for row in read_log(path) if row["step"] <= state.global_step]
        if kept:
            self._seconds_before = kept[-1]["seconds"]
        with whole_file(path) as temporary:
            temporary.write_text("".join(_line(row) for row in kept), encoding="utf-8")

    def write(self, folder: Path, row: Row) -> None:
        """Append `row`, with the training time so far, over all resumptions, as `seconds`."""
        seconds = self._seconds_before + time.perf_counter() - self._started
        row = {**row, "seconds": round(seconds, 3)}
        path = folder / LOG_FILE
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(_line(row))
        if "cross_entropy" in row:
            self.last_row = row

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Note the cross-entropy of an evaluation during training."""
        metrics: Row = kwargs["metrics"]
        losses = {name: value for name, value in metrics.items() if name.endswith("_loss")}
        if state.is_world_process_zero and losses:
            self.write(Path(str(args.output_dir)), {"step": state.global_step, "epoch": state.epoch, **losses})


class ProgressReport(TrainerCallback):
    """Tells a function after every step how far training is."""

    def __init__(self, progress: Progress, log_file: LogFile) -> None:
        self._progress = progress
        self._log_file = log_file

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report where training starts: at 0, or at the step it is resumed from."""
        self._tell(state)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the step."""
        self._tell(state)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report the end, with the last row."""
        self._tell(state)

    def _tell(self, state: TrainerState) -> None:
        if state.is_world_process_zero:
            self._progress(state.global_step, state.max_steps, self._log_file.last_row)


def read_log(path: Path) -> list[Row]:
    """Return the rows of a log file; a last line cut short by a kill is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"
