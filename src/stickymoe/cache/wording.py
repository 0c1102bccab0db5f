"""Words that every report of a replay shares."""

from typing import Any


def start(reset: str) -> str:
    """Say when a cache starts cold: `sequence` or `never`."""
    return "cold at each sequence" if reset == "sequence" else "one cache through the whole trace"


def capacity(told: dict[str, Any], layers: int) -> str:
    """Say how much is held, and whose slots or bytes they are; `told` are the semantics of a report."""
    size, capacity_bytes = told["capacity"], told["capacity_bytes"]
    pooled = told["scope"] == "model"
    if capacity_bytes is not None:
        slots = "" if size is None else f" ({size} slots)" if pooled else f" ({_total(size, layers)} slots)"
        where = "for the whole model" if pooled else "shared out evenly over the layers"
        return f"capacity {capacity_bytes} bytes{slots} {where}"
    if isinstance(size, list):
        return f"capacity {sum(size)} split over {layers} layers"
    meaning = " (nothing is kept)" if size == 0 else ""
    if size >= told["num_experts"] * (layers if pooled else 1):
        meaning = " (every expert fits)"
    return f"capacity {size}{meaning} {'for the whole model' if pooled else 'a layer'}"


def _total(size: int | list[int], layers: int) -> int:
    return sum(size) if isinstance(size, list) else size * layers
