"""The routers by the name a config gives them. A new one costs a file and a line here."""

from __future__ import annotations

from stickymoe.model.fixed_routers import HashRouter, TrajectoryRouter
from stickymoe.model.router import Router
from stickymoe.model.softmax_router import SoftmaxRouter
from stickymoe.model.window_router import HardWindowRouter, HysteresisRouter

ROUTERS: dict[str, type[Router]] = {
    "softmax": SoftmaxRouter,
    "hard_window": HardWindowRouter,
    "hysteresis": HysteresisRouter,
    "trajectory": TrajectoryRouter,
    "hash": HashRouter,
}
ROUTER_SETTINGS = tuple(dict.fromkeys(name for router in ROUTERS.values() for name in router.settings))
