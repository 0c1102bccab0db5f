"""From what a file holds, a trace or a profile, to its diagnosis and its summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.calibration import Calibration
from stickymoe.cache.settings import Semantics
from stickymoe.core.errors import SettingError
from stickymoe.experiments.diagnosis.budget import ModelSizes, budget_for
from stickymoe.experiments.diagnosis.candidates import served_part
from stickymoe.experiments.diagnosis.diagnosis import Progress, diagnose
from stickymoe.experiments.diagnosis.facts import facts_of
from stickymoe.experiments.diagnosis.profile import ProfileDiagnosis, diagnose_profile
from stickymoe.experiments.diagnosis.profile_page import profile_summary
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.summary import summary
from stickymoe.traces import RoutingTrace, UsageProfile


def diagnose_input(
    found: RoutingTrace | UsageProfile,
    name: str,
    *,
    semantics: Semantics | None = None,
    budget: Mapping[str, Any] | None = None,
    policies: Sequence[str] = (),
    expert_bytes: int | None = None,
    served: int | None = None,
    calibration: Calibration | None = None,
    link: str = "disk-random",
    progress: Progress = lambda description, done, total: None,
) -> Diagnosis | ProfileDiagnosis:
    """Diagnose what was read.

    Args:
        found: A trace, or counts, of which only the scope of the semantics and the budget are used.
        name: What to call it, the file's name.
        semantics: How to count.
        budget: The keyword arguments of `budget_for`: `slots`, `share` or `total_bytes`, and `asked`.
        policies: Policies to compare; all if none are named.
        expert_bytes: Size of one expert, where the trace does not say.
        served: Experts that serve a token, where the trace recorded more ranks; the others are candidates.
        calibration: Of the machine, for times.
        link: How a miss is served there.
        progress: Told `(description, done, total)`.
    """
    semantics = semantics or Semantics()
    if isinstance(found, UsageProfile):
        told = None if expert_bytes is None else (expert_bytes,) * found.num_layers
        sizes = ModelSizes(found.num_experts, found.num_layers, 1, told)
        return diagnose_profile(found, budget_for(sizes, semantics.scope, **(budget or {})), name)
    candidates = with_expert_bytes(found, expert_bytes)
    trace = candidates if served is None else served_part(candidates, served)
    facts = facts_of(trace, name)
    size = budget_for(facts.sizes, semantics.scope, **(budget or {}))
    return diagnose(
        trace,
        facts,
        size,
        semantics,
        policies=policies,
        calibration=calibration,
        link=link,
        candidates=candidates,
        progress=progress,
    )


def with_expert_bytes(trace: RoutingTrace, expert_bytes: int | None) -> RoutingTrace:
    """Return the trace with this size for every expert; a trace that knows its own sizes takes no other."""
    if expert_bytes is None:
        return trace
    if trace.expert_bytes is not None:
        known = sorted(set(trace.expert_bytes.tolist()))
        rule = f"left out for a trace that names its experts' sizes ({known[0]:,} to {known[-1]:,})"
        raise SettingError.broken("expert-bytes", rule, expert_bytes)
    return dataclasses.replace(trace, expert_bytes=np.full(trace.num_layers, expert_bytes, dtype=np.int64))


def summary_lines(found: Diagnosis | ProfileDiagnosis) -> list[str]:
    """Return the summary for the terminal, at most 25 lines."""
    return summary(found) if isinstance(found, Diagnosis) else profile_summary(found)
