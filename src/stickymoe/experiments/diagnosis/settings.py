"""How a diagnosis counts: the semantics of every replay in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Semantics:
    """What `cache.simulate` is told beside policy and capacity; the same for every number of a diagnosis.

    Args:
        scope: `layer`: one cache a layer; `model`: one pool for all.
        accesses: `topk` or `top1`.
        replay: `atomic` or `sequential`.
        prefill: `token` or `pass`.
        count: `assignments` or `unique`.
        reset: `sequence` or `never`.
        admission: `always`, `whole` or `bypass`.
        batch: Sequences a step, their experts united.
    """

    scope: str = "layer"
    accesses: str = "topk"
    replay: str = "atomic"
    prefill: str = "token"
    count: str = "assignments"
    reset: str = "sequence"
    admission: str = "always"
    batch: int = 1

    def keywords(self, **changes: Any) -> dict[str, Any]:
        """Return the keyword arguments for `simulate`, some of them changed."""
        return vars(replace(self, **changes)).copy()

    def without(self, *names: str) -> dict[str, Any]:
        """Return the keyword arguments but for some."""
        return {name: value for name, value in vars(self).items() if name not in names}
