"""The cliff: a pool shared by all layers that is smaller than what one token asks for."""

from __future__ import annotations

import numpy as np

from stickymoe.cache.capacity import Capacity
from stickymoe.cache.settings import CacheSettings


def cliff(settings: CacheSettings, capacity: Capacity, top_k: int) -> str | None:
    """Return a warning where a shared pool is smaller than one token's demand, else None.

    Between two uses of an expert by neighbouring tokens all other layers ask for their k experts, so that LRU (and
    FIFO) cannot hit at all with (layers - 1) * k slots or fewer, whatever the routing; one token needs layers * k.
    """
    if not settings.pooled:
        return None
    slots = 1 if settings.accesses == "top1" else top_k
    sizes, budget = capacity.sizes.astype(np.int64), capacity.budgets[0]
    demand = slots * int(sizes.sum())
    if budget >= demand:
        return None
    # the layer that asks leaves the most room where its experts are the largest
    blocked = demand - slots * int(sizes.max())
    unit = "slots" if int(sizes.max()) == 1 else "bytes"
    return (
        f"cliff: one token asks for {demand} {unit} over {sizes.size} layers and the shared pool holds {budget}; "
        f"LRU and FIFO cannot hit between neighbouring tokens at {blocked} {unit} or fewer; "
        f"take {demand} {unit} or more, or a pool for each layer"
    )
