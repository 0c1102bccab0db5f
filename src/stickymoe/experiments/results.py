"""One run's result as the tables, figures and reports read it: `metrics.json` and `log.jsonl` of a run folder."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stickymoe.core.errors import DataError
from stickymoe.core.files import read_json
from stickymoe.experiments.metrics_file import SCHEMA, Metrics

METRICS_FILE = "metrics.json"
LOG_FILE = "log.jsonl"


@dataclass(frozen=True)
class RunResult:
    """What came out of one training run.

    Args:
        name: Key among its siblings. `vanilla` is the baseline that the others are compared with.
        label: Name for readers, such as `Soft λ=0.5`.
        metrics: Content of `metrics.json`; its schema stands in `metrics_file.py`.
        log: Training log rows, oldest first: `step`, `cross_entropy`, and per-layer lists such as `switch_rate`.
        source: The file to name in an error.

    Raises:
        DataError: The metrics break their schema.
    """

    name: str
    label: str
    metrics: dict[str, Any] = field(repr=False)
    log: list[dict[str, Any]] = field(default_factory=list, repr=False)
    source: Path = Path(METRICS_FILE)

    def __post_init__(self) -> None:
        """Read the metrics at once, so that a broken file is named where it enters."""
        _ = self.read

    @cached_property
    def read(self) -> Metrics:
        """The metrics, checked and typed."""
        found = self.metrics.get("schema")
        if found != SCHEMA:
            raise DataError(
                f"{self.source}: schema must be {SCHEMA}, got {found!r}; evaluate the run again with this version"
            )
        try:
            return Metrics.model_validate(self.metrics)
        except ValidationError as error:
            raise DataError(f"{self.source}: {_first_problem(error)}; evaluate the run again") from error

    @property
    def is_dense(self) -> bool:
        """Whether this is a dense control: every token uses all experts."""
        return self.read.is_dense

    @property
    def entropy_ceiling_bits(self) -> float:
        """Entropy of a uniform choice among the experts, log2 N."""
        return math.log2(self.read.num_experts)

    @classmethod
    def load(cls, run_folder: Path, *, name: str | None = None, label: str | None = None) -> RunResult:
        """Read a run folder.

        Args:
            run_folder: Holds `metrics.json` and, unless the run kept no log, `log.jsonl`.
            name: Overrides the metrics' own `name`; the folder's name where neither is given.
            label: Overrides the metrics' own `label`; the name where neither is given.

        Raises:
            DataError: A file is missing, is not JSON, or breaks the schema.
        """
        path = run_folder / METRICS_FILE
        metrics = read_json(path, DataError, "evaluate the run")
        name = name or metrics.get("name") or run_folder.resolve().name
        label = label or metrics.get("label") or name
        return cls(str(name), str(label), metrics, _read_log(run_folder / LOG_FILE), source=path)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{key} is missing"
    if not key:
        return message
    return f"{key}: {message[0].lower()}{message[1:]}, got {problem['input']!r:.60}"


def _read_log(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a training log; a run without a log file has none."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number} is not JSON; remove the line or train again") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise DataError(f"{path}: line {number} has no whole number `step`; remove the line or train again")
        rows.append(row)
    return rows
