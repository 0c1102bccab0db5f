"""The paper's numbers, as far as its text gives them: facts with their source, shown beside ours."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

FILE = "paper.json"


@cache
def paper() -> dict[str, Any]:
    """Return the whole file."""
    return dict(json.loads((resources.files(__package__ or "") / FILE).read_text(encoding="utf-8")))


def paper_value(size: str, variant: str, measure: str) -> float | None:
    """Return the paper's value of a measure; None where its text gives none, or knows no such size."""
    found = _variant(size, variant).get(measure)
    return None if found is None else float(found)


def paper_layer(size: str, variant: str, layer: int) -> str:
    """Return what the text says of a layer's switch rate, empty if nothing."""
    return str(_variant(size, variant).get("layers", {}).get(str(layer), ""))


def paper_perplexity(size: str, variant: str) -> float | None:
    """Return the paper's perplexity, stated or from the stated change against its baseline."""
    stated, change = paper_value(size, variant, "perplexity"), paper_value(size, variant, "change")
    base = paper_value(size, "vanilla", "perplexity")
    if stated is not None or change is None or base is None:
        return stated
    return base * (1 + change)


def knows(size: str) -> bool:
    """Tell whether the paper has a model of this size's name."""
    return size in paper()["sizes"]


def _variant(size: str, variant: str) -> dict[str, Any]:
    return dict(paper()["sizes"].get(size, {}).get("variants", {}).get(variant, {}))
