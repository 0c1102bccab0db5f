"""Which of the names a home-made trace uses say what, and in which type, judged by a sample of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from stickymoe.core.errors import TraceError
from stickymoe.traces.importers.aliases import PHASES, is_routing, resolve

NUMBERS = ("token", "event", "token_id", "position", "document", "slot", "num_experts", "top_k", "num_layers")
WORDS = ("state", "model")
EITHER = ("layer", "request", "block")


def typed(sample: list[dict[str, Any]]) -> dict[str, tuple[str, pa.DataType]]:
    """Return what records say -> the name they say it under, and its type.

    Args:
        sample: Some records, headers among them.

    Raises:
        TraceError: They are no records of routing.
    """
    keys = dict.fromkeys(key for record in sample for key in record)
    values = {key: [record[key] for record in sample if record.get(key) is not None] for key in keys}
    names = _settled(resolve(key for key in keys if values[key]), values)
    if not is_routing(names):
        raise TraceError(
            "records must name a token or layer and its experts, by names such as token, layer, experts; "
            f"got {', '.join(sorted(keys)[:8]) or 'none'}"
        )
    found = {}
    for what, name in names.items():
        kind = _kind(what, values[name])
        if kind is not None:
            found[what] = (name, kind)
        elif what in ("layer", "token", "experts", "expert"):
            first = values[name][0]
            mixed = (value for value in values[name] if type(value) is not type(first))
            odd = next((value for value in values[name] if _kind(what, [value]) is None), next(mixed, first))
            raise TraceError(f"{name} must be {_RULES[what]}, got {str(odd)[:40]!r}")
    return found


_RULES = {
    "layer": "a whole number or a word",
    "token": "a whole number",
    "experts": "a list of whole numbers",
    "expert": "a whole number",
}


def _settled(names: dict[str, str], values: dict[str, list[Any]]) -> dict[str, str]:
    """Return names whose values fit them: `expert` may hold a list, `stage` a phase."""
    if "experts" not in names and "expert" in names and _all(values[names["expert"]], list):
        names["experts"] = names.pop("expert")
    if "experts" in names and "weights" not in names and "weight" in names:
        names["weights"] = names.pop("weight")
    if "experts" in names:
        names = {what: name for what, name in names.items() if what not in ("expert", "weight", "slot")}
    words = values[names["block"]] if "block" in names else []
    if "phase" not in names and words and all(str(word).lower() in PHASES for word in words):
        names["phase"] = names.pop("block")
    return names


def _kind(what: str, values: list[Any]) -> pa.DataType | None:
    """Return the type of a name's values; None where they are of none that it may have."""
    if what in NUMBERS:
        return pa.int64() if _all(values, int) else None
    if what in WORDS:
        return pa.string() if _all(values, str) else None
    if what in EITHER:
        return pa.int64() if _all(values, int) else pa.string() if _all(values, str) else None
    if what == "phase":
        return pa.bool_() if all(isinstance(value, bool) for value in values) else _kind("layer", values)
    if what in ("experts", "expert"):
        return _nested(values, lambda leaf: _all(leaf, int), pa.int32())
    if what in ("weights", "weight"):
        return _nested(
            values, lambda leaf: all(isinstance(each, int | float) or each is None for each in leaf), pa.float32()
        )
    if what == "resident":
        flags = _nested(values, lambda leaf: all(isinstance(each, bool) for each in leaf), pa.bool_())
        return flags or _nested(values, lambda leaf: _all(leaf, int), pa.int8())
    return None


def _nested(values: list[Any], fits: Callable[[list[Any]], bool], kind: pa.DataType) -> pa.DataType | None:
    """Return `kind`, or lists, or lists of lists of it, as the values are nested; None where they do not fit."""
    depth = 0
    while values and all(isinstance(value, list) for value in values) and depth < 3:
        values = [inner for value in values for inner in value]
        depth += 1
        kind = pa.list_(kind)
    return kind if fits(values) and depth < 3 else None


def _all(values: Iterable[Any], kind: type) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)
