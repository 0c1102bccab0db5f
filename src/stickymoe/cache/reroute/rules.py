"""The rules by which a cache may have a say in routing, and what each needs of a trace."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stickymoe.cache.reroute import reroute_kernel
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


class Rule(NamedTuple):
    """One rule.

    Args:
        code: The kernel's number.
        strength: What its strength means.
        low: Least strength.
        high: Greatest strength.
    """

    code: int
    strength: str
    low: float
    high: float


RULES = {
    "max-rank": Rule(reroute_kernel.MAX_RANK, "ranks within which a cached expert is promoted", 1, 2**31),
    "cumulative": Rule(reroute_kernel.CUMULATIVE, "gate mass within which a cached expert is promoted", 0, 1),
    "cache-prior": Rule(reroute_kernel.CACHE_PRIOR, "bonus of cached experts in mean logit ranges", 0, 1e6),
    "drop-missing": Rule(reroute_kernel.DROP_MISSING, "share of the top weight below which no load is worth it", 0, 1),
    "drop-all": Rule(reroute_kernel.DROP_ALL, "share of the top weight below which no expert runs", 0, 1),
}
NEAR_ONE = 1e-3
WAY_OUT = "drop-missing and drop-all need no more, or serve fewer experts than the trace has slots"


def checked_rule(rule: str, strength: float) -> Rule:
    """Return the rule of that name for a strength in its range."""
    require_one_of("reroute.rule", rule, RULES)
    found = RULES[rule]
    if isinstance(strength, bool) or not found.low <= strength <= found.high:
        raise SettingError.broken("reroute.strength", f"from {found.low} to {found.high} ({found.strength})", strength)
    if rule == "max-rank" and strength != int(strength):
        raise SettingError.broken("reroute.strength", "a whole number of ranks", strength)
    return found


def checked_gates(trace: RoutingTrace) -> Float[np.ndarray, "tokens layers slots"]:
    """Return the weights of the slots, 0 where a slot is empty.

    Raises:
        SettingError: The trace carries none, or one is no gate mass (negative, NaN); the message names it.
    """
    if trace.expert_weights is None:
        raise SettingError.broken(
            "trace.expert_weights", "recorded for rerouting and dropping", None, "record the trace with gate weights"
        )
    gates = np.where(trace.expert_ids == UNASSIGNED, np.float32(0), trace.expert_weights)
    wrong = ~(gates >= 0) | ~np.isfinite(gates)
    if wrong.any():
        token, layer, slot = np.argwhere(wrong)[0].tolist()
        found = f"{float(gates[token, layer, slot])} at token {token}, layer {layer}, slot {slot}"
        raise SettingError(f"trace.expert_weights must be gate probabilities >= 0, got {found}; take the softmax first")
    if not gates.any():
        raise SettingError("trace.expert_weights must hold some gate mass, got zeros only")
    return gates


def require_replayable(
    trace: RoutingTrace, gates: Float[np.ndarray, "tokens layers slots"], rule: str, strength: float, served: int
) -> None:
    """Refuse a rule that looks at experts the trace says nothing about.

    Raises:
        SettingError: In one line what the rule needs, what the trace has, and what can be replayed on it.
    """
    slots, experts = trace.top_k, trace.num_experts
    if rule.startswith("drop") or slots == experts:
        return
    if served == slots:
        found = f"{slots} slots, all of them served"
        raise SettingError(
            f"reroute.rule {rule} needs weights of experts beyond the served ones, the trace has {found}; {WAY_OUT}"
        )
    if rule == "cache-prior":
        raise SettingError(
            f"reroute.rule cache-prior needs the weights of all {experts} experts for the range of their logits, "
            f"the trace has {slots}; max-rank needs no more than it has"
        )
    if rule == "max-rank" and strength > slots:
        raise SettingError.broken("reroute.strength", f"<= the {slots} slots recorded", strength)
    if rule == "cumulative":
        _require_mass(trace, gates, strength)


def _require_mass(trace: RoutingTrace, gates: Float[np.ndarray, "tokens layers slots"], strength: float) -> None:
    routed = trace.expert_ids[..., 0] != UNASSIGNED
    mass = gates.sum(axis=-1, dtype=np.float64)[routed]
    if (np.abs(mass - 1) < NEAR_ONE).all():
        raise SettingError(
            "reroute.rule cumulative needs softmax weights over all experts, the recorded slots of every token sum to "
            "1, as after renormalising; use max-rank"
        )
    if short := int(np.count_nonzero(mass < strength)):
        raise SettingError.broken(
            "reroute.strength",
            f"<= {mass.min():.4f}, the least mass recorded ({short} of {mass.size} events have less than asked for)",
            strength,
        )
