"""Hard-Window: a bonus on the logits of the last W tokens' experts, too large to be overcome."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant

BONUS = 10.0


def hard_window(window: int, *, recursive: bool = False) -> Variant:
    """Bias the router towards the experts of the last `window` tokens. Source: Sticky Routing, eq. 16.

    Args:
        window: W.
        recursive: Whether the window is made of what served, as a cache would hold it, not of what would have been
            chosen without the bonus.
    """
    kind, says = ("-recursive", ", recursive") if recursive else ("", "")
    settings = {"router_type": "hard_window", "router_window": window, "router_bonus": BONUS}
    overrides = {f"model.{key}": value for key, value in {**settings, "router_recursive": recursive}.items()}
    return Variant(f"hard-window{kind}-{window}", f"Hard-Window W={window}{says}", overrides)


WINDOWS = (2, 4, 8)
HARD_WINDOWS = tuple(hard_window(window) for window in WINDOWS)
RECURSIVE_HARD_WINDOWS = tuple(hard_window(window, recursive=True) for window in WINDOWS)
