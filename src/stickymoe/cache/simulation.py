"""One cache setting on one trace: its pools, fed whole or in pieces, and the report of what they counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stickymoe.cache.capacity import Capacity, Layout, checked_capacity, layout_of, renumbered
from stickymoe.cache.cliff import cliff
from stickymoe.cache.objects import count_own_policy
from stickymoe.cache.order import Order, order_of
from stickymoe.cache.pools import Piece, PoolReplay, feed
from stickymoe.cache.profile import Profile, ProfileSource, chosen_by_profile
from stickymoe.cache.registry import checked_options
from stickymoe.cache.replay_kernel import COMPULSORY, HITS, LOADS, MISSES
from stickymoe.cache.report import PHASE_NAMES, CacheReport
from stickymoe.cache.settings import CacheSettings
from stickymoe.core.errors import SettingError
from stickymoe.traces import RoutingTrace


class Simulation:
    """What `simulate` does once its settings are checked.

    Args:
        settings: How to count.
        capacity: The budgets.
        layout: The model's experts.
        trace: The trace, or its first piece, for what the settings ask of it.
        profile: What a static cache chooses by.
    """

    def __init__(
        self,
        settings: CacheSettings,
        capacity: Capacity,
        layout: Layout,
        trace: RoutingTrace,
        profile: ProfileSource = None,
    ) -> None:
        """Check what settings and trace must settle together."""
        self.settings, self.capacity, self.layout = settings, capacity, layout
        self.top_k, self.knows_phases = trace.top_k, trace.phases is not None
        self.weighted = False
        self.options: dict[str, float] = {}
        self.profile: Profile | None = None
        self.counts = np.zeros((4, layout.layers, 2), dtype=np.int64)
        if settings.factory is None:
            self._check_policy(trace, profile)
        elif profile is not None or capacity.slots is None:
            rule = "one with slots of one size and no profile, where it is your own"
            raise SettingError.broken("cache.policy", rule, settings.policy)

    def _check_policy(self, trace: RoutingTrace, profile: ProfileSource) -> None:
        settings, kind = self.settings, self.settings.kind
        blocks = self.layout.experts * (self.layout.layers if settings.pooled else 1)
        self.options = checked_options(settings.policy, settings.options, blocks)
        if "weights" in kind.needs:
            if trace.expert_weights is None:
                raise SettingError.broken("cache.policy", "one that needs no weights for this trace", settings.policy)
            if not float(trace.expert_weights.min()) >= 0:
                rule = "used with gate weights >= 0"
                raise SettingError.broken(f"cache.policy {settings.policy}", rule, float(trace.expert_weights.min()))
            self.weighted = True
        if "slots" in kind.needs and self.capacity.slots is None:
            rule = "one that does not count slots, where experts of different size share a pool"
            raise SettingError.broken("cache.policy", rule, settings.policy)
        if "profile" in kind.needs:
            self.profile = chosen_by_profile(profile, trace, settings, self.capacity)
        elif profile is not None:
            raise SettingError.broken("cache.profile", "left out unless the policy is static", settings.policy)

    @property
    def pools(self) -> range:
        """The numbers of the pools."""
        return range(1 if self.settings.pooled else self.layout.layers)

    def pool(self, number: int, uses: int | None = None) -> PoolReplay:
        """Return a pool that has seen nothing yet, for so many uses at most."""
        return PoolReplay(self.settings, self.capacity, self.layout, number, self.profile, uses)

    def piece(self, trace: RoutingTrace, order: Order) -> Piece:
        """Return what of a trace is replayed."""
        return Piece.of(trace, order, self.settings, self.weighted)

    def told(self) -> dict[str, Any]:
        """Return the semantics: every setting, as reports tell them."""
        known = {"top_k": self.top_k, "num_experts": self.layout.declared, "options": self.options}
        return self.settings.told() | self.capacity.told | known

    def report(self) -> CacheReport:
        """Label what was counted with the semantics."""
        counts, layout = self.counts, self.layout
        per_layer = counts.sum(axis=2)
        phases = {name: counts[:2, :, number].copy() for number, name in enumerate(PHASE_NAMES)}
        profile: dict[str, Any] = {} if self.profile is None else dict(self.profile.told)
        if profile and layout.expert_bytes is not None and self.profile is not None:
            ahead = self.profile.chosen.sum(axis=1).tolist()
            profile["bytes_ahead"] = sum(n * size for n, size in zip(ahead, layout.expert_bytes.tolist(), strict=True))
        return CacheReport(
            per_layer[HITS],
            per_layer[MISSES],
            per_layer[COMPULSORY],
            self.told(),
            loads_per_layer=per_layer[LOADS],
            per_phase=phases if self.knows_phases else None,
            expert_bytes=layout.expert_bytes,
            profile=profile,
            cliff=cliff(self.settings, self.capacity, self.top_k),
        )


def simulations_of(
    trace: RoutingTrace,
    settings: CacheSettings,
    sizes: Iterable[tuple[Any, Any]],
    profile: ProfileSource,
    expert_bytes: int | Sequence[int] | np.ndarray | None,
) -> tuple[RoutingTrace, list[Simulation]]:
    """Return the trace as it is replayed, and a simulation for each size, given as (capacity, capacity_bytes)."""
    declared, trace = trace.num_experts, renumbered(trace)
    layout = layout_of(trace, expert_bytes, declared)
    budgets = [checked_capacity(slots, total, settings, layout) for slots, total in sizes]
    return trace, [Simulation(settings, budget, layout, trace, profile) for budget in budgets]


def replay_together(simulations: Sequence[Simulation], trace: RoutingTrace) -> None:
    """Replay a whole trace, one pool after the other, for simulations that differ in their capacity alone."""
    first = simulations[0]
    settings, layout = first.settings, first.layout
    piece = Piece.of(trace, order_of(trace, settings), settings, first.weighted)
    for number in first.pools:
        layers = slice(None) if settings.pooled else slice(number, number + 1)
        if settings.factory is None:
            pools = [each.pool(number, piece.ids[:, layers].size) for each in simulations]
            feed(pools, piece)
            for each, pool in zip(simulations, pools, strict=True):
                each.counts[:, layers] = pool.counts
            continue
        requests = piece.requests(layers, 0, piece.order.groups.size - 1)
        for each in simulations:
            slots = each.capacity.budgets[number]
            each.counts[:, layers] = count_own_policy(requests, settings.factory, slots, layout.experts, settings)
