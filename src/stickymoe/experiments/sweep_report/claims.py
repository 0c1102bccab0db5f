"""The verdicts on the paper's claims, at each size; docs/claims.md says what decides them, and was written first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from stickymoe.experiments.formatting import fixed
from stickymoe.experiments.sweep_report.claim_rules import NEEDS, RULES, larger_tolerates_more
from stickymoe.experiments.sweep_report.conditions import Condition, Verdict, together
from stickymoe.experiments.sweep_report.paper import paper
from stickymoe.experiments.sweep_report.summary import SizeSummary, VariantSummary

ACROSS = "scale"
"""The claim that compares sizes; the others are decided at each."""


@dataclass(frozen=True)
class DecidedClaim:
    """A claim at one size, or across sizes.

    Attributes:
        key: Its name in docs/claims.md.
        claim: What the paper claims.
        where: The size, or the sizes compared.
        conditions: What was asked and found.
        remarks: What stands beside the verdict without deciding it.
    """

    key: str
    claim: str
    where: str
    conditions: list[Condition]
    remarks: list[str]

    @property
    def verdict(self) -> Verdict:
        """What the conditions come to."""
        return together(self.conditions)

    @property
    def missing(self) -> list[str]:
        """Why values are not there, once each."""
        return list(dict.fromkeys(each.reason for each in self.telling if not each.value))

    @property
    def telling(self) -> list[Condition]:
        """The conditions that make the verdict what it is: those that fail, else those that are open, else all."""
        return [condition for condition in self.conditions if condition.verdict is self.verdict]


def decide(sizes: Sequence[SizeSummary], planned: Mapping[str, AbstractSet[str]] | None = None) -> list[DecidedClaim]:
    """Return every claim at every size, in the paper's order; the one that compares sizes stands once.

    Args:
        sizes: What was measured.
        planned: The variants that the sweep consists of at each size; a claim about others is not asked there. All are
            if not given.
    """
    decided = []
    for key, claim in paper()["claims"].items():
        asked = [size for size in sizes if planned is None or _concerns(key, planned[size.size])]
        if key == ACROSS:
            if asked:
                where = " against ".join(size.size for size in sizes[::-1])
                decided.append(DecidedClaim(key, claim, where, larger_tolerates_more(sizes), []))
            continue
        for size in asked:
            conditions, touched = RULES[key](size)
            remarks = [flat_remark(variant) for variant in touched if variant.flat_layers()]
            decided.append(DecidedClaim(key, claim, size.size, conditions, remarks))
    return decided


def _concerns(key: str, planned: AbstractSet[str]) -> bool:
    return any(needed <= planned for needed in NEEDS[key])


def flat_remark(variant: VariantSummary) -> str:
    """Say that a variant's gates are flat, with the numbers."""
    entropy, margin = variant.means["gate_entropy"], variant.means["gate_margin"]
    assert entropy is not None
    assert margin is not None
    return (
        f"{variant.label}: flat gates in {len(variant.flat_layers())} of {variant.any_result.read.num_layers} layers "
        f"(mean entropy {fixed(entropy.mean)} of {fixed(variant.entropy_ceiling)} bits, margin {fixed(margin.mean, 3)})"
    )
