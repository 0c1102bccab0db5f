"""Replay a trace with weights under a rule that prefers cached experts, or drops light ones."""

import numpy as np

from stickymoe.cache.reroute import reroute_kernel
from stickymoe.cache.reroute.report import RerouteReport
from stickymoe.cache.reroute.rules import checked_gates, checked_rule, require_replayable
from stickymoe.cache.scan import POLICIES, Capacity, ScanSettings, sequence_numbers
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


def simulate_rerouting(
    trace: RoutingTrace,
    rule: str,
    strength: float,
    capacity: Capacity,
    *,
    keep: int = 1,
    served: int | None = None,
    policy: str = "lru",
    scope: str = "layer",
    reset: str = "sequence",
) -> RerouteReport:
    """Count what a cache would have found if it had had a say in the routing.

    Ranks go by recorded weight. The top `keep` always serve; what serves beside them is chosen against the cache as it
    is before the event:

    - `max-rank`: cached experts within the first `strength` ranks, in order of rank, then the others in order of rank.
    - `cumulative`: the same within the shortest prefix of the ranks whose mass reaches `strength`.
    - `cache-prior`: the best by logit + strength * (running mean of the layer's logit range) * [cached].
    - `drop-missing`: the router's choice but for experts not cached and lighter than `strength` times the top weight.
    - `drop-all`: the router's choice but for experts lighter than `strength` times the top weight, cached or not.

    Args:
        trace: The routing with weights. Where it was recorded with more slots than serve a token, the others are the
            candidates; with no more than serve, only the rules that drop can be replayed.
        rule: A name of `RULES`.
        strength: See above.
        capacity: Slots of a layer, or of the model if that is the scope; with scope `layer` also one number a layer.
        keep: Experts of the highest ranks that always serve, >= 1.
        served: Experts a token is served by; all recorded slots if not given.
        policy: `lru`, `fifo` or `lfu`.
        scope: `layer` or `model`; see `simulate`.
        reset: `sequence` or `never`; see `simulate`.

    Returns:
        Hits, misses, changed and dropped choices and gate mass, beside the same cache with the router's own choice.

    Raises:
        SettingError: A setting breaks its rule, or the trace does not hold what the rule looks at.

    Source: Cache-conditional routing (max-rank, cumulative, cache-prior), training-free, here on recorded weights.
    """
    code = checked_rule(rule, strength)
    settings = ScanSettings.checked(trace, capacity, policy, scope, reset)
    serving = trace.top_k if served is None else served
    for name, value, most in (("served", serving, trace.top_k), ("keep", keep, serving)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
            raise SettingError.broken(f"reroute.{name}", f"a whole number from 1 to {most}", value)
    gates = checked_gates(trace)
    require_replayable(trace, gates, rule, strength, serving)
    # Empty slots last, the first of equal weights first.
    order = np.argsort(np.where(trace.expert_ids == UNASSIGNED, np.inf, -gates), axis=-1, kind="stable")
    kernel_args = (
        np.ascontiguousarray(trace.expert_ids, dtype=np.int32),
        gates.astype(np.float64),
        order.astype(np.int32),
        sequence_numbers(trace),
        trace.num_experts,
        settings.capacities(trace),
        scope == "model",
        POLICIES[policy],
        reset == "sequence",
    )
    counts, mass = reroute_kernel.replay_rerouted(*kernel_args, code.code, float(strength), int(keep), int(serving))
    plain, _ = reroute_kernel.replay_rerouted(*kernel_args, reroute_kernel.NONE, 0.0, int(keep), int(serving))
    semantics = settings.told | {
        "rule": rule,
        "strength": float(strength),
        "meaning": code.strength,
        "keep": int(keep),
        "served": int(serving),
        "slots": trace.top_k,
        "replay": "atomic",
        "prefill": "token",
        "count": "assignments",
    }
    return RerouteReport(
        hits_per_layer=counts[:, reroute_kernel.HITS],
        misses_per_layer=counts[:, reroute_kernel.MISSES],
        changed_per_layer=counts[:, reroute_kernel.CHANGED],
        dropped_per_layer=counts[:, reroute_kernel.DROPPED],
        own_mass_per_layer=mass[:, 0],
        served_mass_per_layer=mass[:, 1],
        plain_hits_per_layer=plain[:, reroute_kernel.HITS],
        plain_misses_per_layer=plain[:, reroute_kernel.MISSES],
        semantics=semantics,
    )
