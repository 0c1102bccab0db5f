"""Policies at capacities, side by side: what `stickymoe simulate` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stickymoe.cache import POLICIES, CacheReport, simulate
from stickymoe.cache.calibration import Calibration
from stickymoe.cache.cost import LatencyPrediction, predict_latency
from stickymoe.cache.profile import HINDSIGHT, ProfileSource
from stickymoe.cache.report import PHASE_NAMES
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.diagnosis.facts import facts_of
from stickymoe.experiments.diagnosis.policies import bytes_per_token, label_of, loads_of
from stickymoe.experiments.diagnosis.wording import size
from stickymoe.experiments.formatting import fixed, percent
from stickymoe.traces import RoutingTrace

if TYPE_CHECKING:
    from rich.table import Table

Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True)
class Replayed:
    """One policy at one capacity.

    Args:
        asked: The capacity in the user's words.
        report: What was counted.
        loads_per_token: Misses a token.
        bytes_per_token: Their bytes; None where no size is known.
        predicted: Time a token; None without a calibration.
    """

    asked: str
    report: CacheReport
    loads_per_token: float
    bytes_per_token: float | None
    predicted: LatencyPrediction | None

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON takes it."""
        more = {"loads_per_token": self.loads_per_token, "bytes_per_token": self.bytes_per_token}
        timed = {} if self.predicted is None else {"predicted": self.predicted.as_dict()}
        return {"asked": self.asked, **self.report.as_dict(), **more, **timed}


def replay_all(
    trace: RoutingTrace,
    policies: Sequence[str],
    capacities: Sequence[tuple[str, dict[str, Any]]],
    semantics: Semantics,
    *,
    profile: ProfileSource = None,
    calibration: Calibration | None = None,
    link: str = "disk-random",
    progress: Progress = lambda description, done, total: None,
) -> list[Replayed]:
    """Replay every policy at every capacity.

    Args:
        trace: The routing.
        policies: Names of `POLICIES`.
        capacities: The user's words and the argument for `simulate`, one pair a capacity.
        semantics: How to count.
        profile: What static chooses by; the trace itself if not given.
        calibration: Of the machine, for times.
        link: How a miss is served there.
        progress: Told `(description, done, total)`.

    Raises:
        SettingError: Unknown policy, or a calibration without the experts' sizes.
    """
    for policy in policies:
        require_one_of("policy", policy, POLICIES)
    if profile is not None and not any(map(_takes_profile, policies)):
        raise SettingError.broken("profile", "left out unless static is among the policies", ", ".join(policies))
    facts = facts_of(trace, "")
    if calibration is not None and facts.expert_bytes is None:
        raise SettingError("times need the experts' sizes, which the trace does not know; add --expert-bytes")
    found = []
    jobs = [(policy, asked, argument) for policy in dict.fromkeys(policies) for asked, argument in capacities]
    for number, (policy, asked, argument) in enumerate(jobs):
        progress(f"replaying · {policy} {asked}", number, len(jobs))
        source = profile if _takes_profile(policy) else None
        report = simulate(trace, policy, profile=source, **argument, **semantics.keywords())
        predicted = None
        if calibration is not None and facts.expert_bytes is not None:
            sizes = list(facts.expert_bytes)
            predicted = predict_latency(report, calibration, tokens=facts.tokens, expert_bytes=sizes, link=link)
        found.append(
            Replayed(asked, report, loads_of(report) / facts.tokens, bytes_per_token(report, facts), predicted)
        )
    return found


def replay_table(found: Sequence[Replayed]) -> Table:
    """Return one row a policy and capacity, narrow enough for a terminal of 80 columns where times are left out."""
    from rich.table import Table

    phases = PHASE_NAMES if found[0].report.per_phase is not None else ()
    timed = any(each.predicted for each in found)
    sized = any(each.bytes_per_token is not None for each in found)
    table = Table(box=None, padding=(0, 1), collapse_padding=True, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    heads = ["capacity", "hit\nrate", *phases, "hits", "misses", "first\nuses", "loads\na token"]
    heads += ["bytes\na token"] if sized else []
    heads += ["ms\na token", "tokens\na second"] if timed else []
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True, vertical="bottom")
    for each in found:
        report = each.report
        cells = [each.asked, percent(report.hit_rate, 2)]
        cells += [percent(_rate(*report.phase(name)), 2) for name in phases]
        cells += [f"{report.hits:,}", f"{report.misses:,}"]
        cells += [f"{report.compulsory:,}", fixed(each.loads_per_token, 2)]
        cells += [size(each.bytes_per_token)] if sized else []
        if each.predicted is not None:
            cells += [fixed(each.predicted.ms_per_token[1], 2), fixed(each.predicted.tokens_per_second, 2)]
        table.add_row(_label(report), *cells)
    return table


def notes(found: Sequence[Replayed]) -> list[str]:
    """Return what to know beside the numbers, each once: what a profile cost, pools smaller than one token's demand."""
    reports = [each.report for each in found]
    costs = [
        f"{_label(each)}: chosen by {each.profile['from']}, "
        f"{each.profile['loads_ahead']:,} experts loaded ahead of each of {each.profile['cold_starts']:,} cold starts"
        for each in reports
        if each.profile
    ]
    return list(dict.fromkeys([*costs, *(each.cliff for each in reports if each.cliff is not None)]))


def _label(report: CacheReport) -> str:
    label = label_of(report.semantics["policy"])
    return label if report.profile.get("from", HINDSIGHT) == HINDSIGHT else "Pinned"


def _takes_profile(policy: str) -> bool:
    return "profile" in POLICIES[policy].needs


def _rate(hits: int, misses: int) -> float | None:
    return hits / (hits + misses) if hits + misses else None
