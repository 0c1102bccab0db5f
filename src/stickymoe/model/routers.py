"""The routers by the name a config gives them. A new one costs a file and a line here."""

from __future__ import annotations

from collections.abc import Callable

from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.router import Router
from stickymoe.model.softmax_router import SoftmaxRouter

ROUTERS: dict[str, Callable[[StickyMoEConfig], Router]] = {
    "softmax": SoftmaxRouter,
}
