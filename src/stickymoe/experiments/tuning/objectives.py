"""What routers are tuned for, by name: the published recipes and the control."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.losses import TERMS


@dataclass(frozen=True)
class TuningObjective:
    """Coefficients of the terms beside cross-entropy, and how fast the routers learn.

    Attributes:
        name: What `--objective` takes.
        what: One line for help and reports.
        coefficients: Weight of each term; balance is off unless it is among them.
        learning_rate: At its peak.
        open_choices: What its source leaves open, and what stands here in its place; empty for none.
    """

    name: str
    what: str
    coefficients: Mapping[str, float] = field(default_factory=dict)
    learning_rate: float = 5e-5
    open_choices: str = ""

    def worded(self) -> str:
        """Return what it is in one line, with what its source leaves open."""
        terms = ", ".join(f"{name} {value:g}" for name, value in self.coefficients.items())
        told = f"{self.what} ({terms})" if terms else self.what
        return f"{told}; open in the paper as we have it: {self.open_choices}" if self.open_choices else told

    def with_terms(self, terms: Mapping[str, float]) -> TuningObjective:
        """Return the objective with these coefficients in place of its own, or beside them; 0 takes a term out."""
        if not terms:
            return self
        merged = {name: value for name, value in {**self.coefficients, **terms}.items() if value != 0}
        return TuningObjective(self.name, self.what, merged, self.learning_rate, self.open_choices)


_WEIGHTS = "the weights of its terms and W of the working set: ours"

OBJECTIVES: dict[str, TuningObjective] = {
    objective.name: objective
    for objective in (
        TuningObjective(
            "remoe",
            "ReMoE: reuse mass, smoothness, lags, working set, and trust in the frozen router",
            {"reuse": 0.1, "smoothness": 0.01, "lag": 0.01, "working_set": 0.01, "trust": 0.1},
            open_choices=_WEIGHTS,
        ),
        TuningObjective(
            "paper",
            "what the Sticky Routing paper simulates: the consistency loss alone",
            {"consistency": 0.1},
            learning_rate=1e-4,
        ),
        TuningObjective("ce", "cross-entropy alone: what more training by itself does"),
        TuningObjective(
            "reuse",
            "ReMoE's reuse mass and trust alone",
            {"reuse": 0.1, "trust": 0.1},
            open_choices="the weights of its terms: ours",
        ),
        TuningObjective(
            "working-set",
            "few experts in each window of tokens, and trust in the frozen router",
            {"working_set": 0.1, "trust": 0.1},
            open_choices=_WEIGHTS,
        ),
    )
}
CONTROL = OBJECTIVES["ce"]


def choose_objective(name: str, terms: Mapping[str, float] | None = None) -> TuningObjective:
    """Return an objective by name, with some coefficients changed.

    Raises:
        SettingError: There is no such objective; the nearest name is told.
    """
    if name not in OBJECTIVES:
        raise SettingError.broken("objective", "one of " + ", ".join(OBJECTIVES), name, nearest(name, OBJECTIVES))
    return OBJECTIVES[name].with_terms(terms or {})


def read_terms(words: Iterable[str]) -> dict[str, float]:
    """Return coefficients from words such as `reuse=0.5`.

    Raises:
        SettingError: A word is no term with a number, or a term comes twice.
    """
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in TERMS:
            raise SettingError.broken("term", "one of " + ", ".join(TERMS), name, nearest(name, TERMS))
        try:
            number = float(value)
        except ValueError:
            raise SettingError.broken("term", "TERM=COEFFICIENT, such as reuse=0.5", word) from None
        if name in found:
            raise SettingError(f"term {name} must be given once, got it twice")
        found[name] = number
    return found
