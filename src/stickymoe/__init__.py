"""StickyMoE: Mixture-of-Experts routers that stay put, measured, predicted and run inside a memory budget.

Importing the package is light: no torch, no transformers. The public names below load their room at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stickymoe.core import autoregister

if TYPE_CHECKING:
    from stickymoe.model import StickyMoEConfig as StickyMoEConfig
    from stickymoe.model import StickyMoEForCausalLM as StickyMoEForCausalLM

__version__ = "0.1.0"

# Public name -> the room it comes from; the block above says the same to type checkers, a test keeps them alike.
_ROOM_OF = {
    "StickyMoEConfig": "model",
    "StickyMoEForCausalLM": "model",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its room at first use (PEP 562)."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF})


autoregister.install()
