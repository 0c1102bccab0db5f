"""A claim's conditions: a value with its interval against a threshold, decided three ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stickymoe.metrics.intervals import Interval


class Verdict(StrEnum):
    """What the numbers say of a claim or of one of its conditions."""

    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot tell at this scale"


@dataclass(frozen=True)
class Condition:
    """One condition of a claim, decided.

    Attributes:
        text: What is asked, with its threshold.
        value: What was measured, with its interval; empty if nothing was.
        verdict: Decided.
        reason: Why it is open; empty if it is not.
        paper: The paper's value; empty where its text gives none.
    """

    text: str
    value: str
    verdict: Verdict
    reason: str = ""
    paper: str = ""


@dataclass(frozen=True)
class Scale:
    """How values of a kind are written, and how far one seed may be off.

    Attributes:
        write: From a value to text.
        allowance: What one seed's value must clear the threshold by.
    """

    write: Callable[[float], str]
    allowance: float


def at_most(text: str, found: Interval | None, threshold: float, scale: Scale, absent: str) -> Condition:
    """Decide `value <= threshold`.

    Args:
        text: What is asked.
        found: The value; None where a run is missing.
        threshold: On whose side it has to lie.
        scale: How values are written, and the allowance of one seed.
        absent: What is missing where there is no value.
    """
    if found is None:
        return Condition(text, "", Verdict.OPEN, absent)
    low, high = ends(found, scale.allowance)
    value = written(found, scale.write)
    if high <= threshold:
        return Condition(text, value, Verdict.HOLDS)
    if low > threshold:
        return Condition(text, value, Verdict.FAILS)
    return Condition(text, value, Verdict.OPEN, _near(found, scale))


def at_least(text: str, found: Interval | None, threshold: float, scale: Scale, absent: str) -> Condition:
    """Decide `value >= threshold`; see `at_most`."""
    turned = None if found is None else _negative(found)
    decided = at_most(text, turned, -threshold, scale, absent)
    return Condition(text, "" if found is None else written(found, scale.write), decided.verdict, decided.reason)


def open_unless(clear: bool, condition: Condition, verdict: Verdict, reason: str) -> Condition:
    """Return the condition, or open where it comes to `verdict` although what would make that telling is not clear."""
    if clear or condition.verdict is not verdict:
        return condition
    return replace(condition, verdict=Verdict.OPEN, reason=reason)


def together(conditions: Sequence[Condition]) -> Verdict:
    """Return the verdict on a claim: one failure is enough, and all must hold."""
    verdicts = [condition.verdict for condition in conditions]
    if Verdict.FAILS in verdicts:
        return Verdict.FAILS
    return Verdict.HOLDS if verdicts and set(verdicts) == {Verdict.HOLDS} else Verdict.OPEN


def ends(found: Interval, allowance: float) -> tuple[float, float]:
    """Return the interval, or for one seed what the allowance makes of its value."""
    if found.low is None or found.high is None:
        return found.mean - allowance, found.mean + allowance
    return found.low, found.high


def written(found: Interval, write: Callable[[float], str]) -> str:
    """Return `value [low, high]`, or that there is one seed."""
    if found.low is None or found.high is None:
        return f"{write(found.mean)} (one seed)"
    return f"{write(found.mean)} [{write(found.low)}, {write(found.high)}]"


def _near(found: Interval, scale: Scale) -> str:
    if found.low is None:
        return f"one seed, and nearer to the threshold than {scale.write(scale.allowance)}"
    return f"the interval over {found.n} seeds holds the threshold"


def _negative(found: Interval) -> Interval:
    low = None if found.high is None else -found.high
    high = None if found.low is None else -found.low
    return Interval(-found.mean, low, high, found.n)
