"""Replay a trace with weights under a rule that prefers cached experts, or drops light ones."""

from collections.abc import Mapping

import numpy as np

from stickymoe.cache.intervention import Slots, intervention, replayed_pools
from stickymoe.cache.replay_kernel import HITS, MISSES
from stickymoe.cache.reroute.report import RerouteReport
from stickymoe.cache.reroute.reroute_kernel import CHANGED, DROPPED, KINDS, NONE, replay_rerouted
from stickymoe.cache.reroute.rules import checked_gates, checked_rule, require_replayable
from stickymoe.cache.simulation import Simulation
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace
from stickymoe.traces.checks import UNASSIGNED


def simulate_rerouting(
    trace: RoutingTrace,
    rule: str,
    strength: float,
    capacity: Slots,
    *,
    keep: int = 1,
    served: int | None = None,
    policy: str = "lru",
    scope: str = "layer",
    reset: str = "sequence",
    options: Mapping[str, float] | None = None,
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
        capacity: Slots of a layer, or of the model if that is the scope, or a share of its experts; with scope `layer`
            also one number a layer.
        keep: Experts of the highest ranks that always serve, >= 1.
        served: Experts a token is served by; all recorded slots if not given.
        policy: An online policy of `POLICIES`: not a bound or `static`, which go by what the trace asks for.
        scope: `layer` or `model`; see `simulate`.
        reset: `sequence` or `never`; see `simulate`.
        options: The policy's own settings.

    Returns:
        Hits, misses, changed and dropped choices and gate mass, beside the same cache with the router's own choice.

    Raises:
        SettingError: A setting breaks its rule, or the trace does not hold what the rule looks at.

    Source: Cache-conditional routing (max-rank, cumulative, cache-prior), training-free, here on recorded weights.
    """
    code = checked_rule(rule, strength)
    simulation = intervention(trace, capacity, policy, scope=scope, reset=reset, options=options)
    serving = trace.top_k if served is None else served
    for name, value, most in (("served", serving, trace.top_k), ("keep", keep, serving)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
            raise SettingError.broken(f"reroute.{name}", f"a whole number from 1 to {most}", value)
    gates = checked_gates(trace)
    require_replayable(trace, gates, rule, strength, serving)
    # Empty slots last, the first of equal weights first.
    order = np.argsort(np.where(trace.expert_ids == UNASSIGNED, np.inf, -gates), axis=-1, kind="stable")
    order = order.astype(np.int32)
    counts, mass = _replay(simulation, trace, order, code.code, float(strength), int(keep), int(serving))
    plain, _ = _replay(simulation, trace, order, NONE, 0.0, int(keep), int(serving))
    semantics = simulation.told() | {
        "rule": rule,
        "strength": float(strength),
        "meaning": code.strength,
        "keep": int(keep),
        "served": int(serving),
        "slots": trace.top_k,
    }
    return RerouteReport(
        hits_per_layer=counts[HITS],
        misses_per_layer=counts[MISSES],
        changed_per_layer=counts[CHANGED],
        dropped_per_layer=counts[DROPPED],
        own_mass_per_layer=mass[0],
        served_mass_per_layer=mass[1],
        plain_hits_per_layer=plain[HITS],
        plain_misses_per_layer=plain[MISSES],
        semantics=semantics,
    )


def _replay(
    simulation: Simulation, trace: RoutingTrace, order: np.ndarray, rule: int, strength: float, keep: int, served: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts (kind, layer) and the gate mass (own or served, layer) of all pools."""
    counts = np.zeros((KINDS, trace.num_layers), dtype=np.int64)
    mass = np.zeros((2, trace.num_layers), dtype=np.float64)
    for pool, requests in replayed_pools(simulation, trace, weighted=True):
        told, weighed = counts[:, pool.layers].copy(), mass[:, pool.layers].copy()
        ranks = np.ascontiguousarray(order[:, pool.layers])
        pool.drive(replay_rerouted, requests, ranks, rule, strength, keep, served, told, weighed)
        counts[:, pool.layers], mass[:, pool.layers] = told, weighed
    return counts, mass
