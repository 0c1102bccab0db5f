"""The settings of a replay, each checked in one place and told by every report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from stickymoe.cache.registry import POLICIES, PolicyKind
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.traces.streams import ACCESSES, REPLAYS, RESETS, SCOPES

PREFILLS = ("token", "pass")
COUNTS = ("assignments", "unique")
ADMISSIONS = ("always", "whole", "bypass")


@dataclass(frozen=True)
class Semantics:
    """What a hit is: the settings that a hit rate means nothing without. `simulate` says what each does.

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
        changed = replace(self, **changes)
        return {name: getattr(changed, name) for name in SEMANTICS}

    def without(self, *names: str) -> dict[str, Any]:
        """Return the keyword arguments but for some."""
        return {name: value for name, value in self.keywords().items() if name not in names}


SEMANTICS = tuple(each.name for each in fields(Semantics))


@dataclass(frozen=True, kw_only=True)
class CacheSettings(Semantics):
    """How a replay counts, and with which policy.

    Args:
        policy: Its name.
        split: The slots of each layer, where the user gave them in place of a scope.
        options: The policy's own settings.
        factory: Makes the policy, where it is the user's own.
    """

    policy: str
    split: tuple[int, ...] | None = None
    options: Mapping[str, float] | None = None
    factory: Callable[[int], Any] | None = None

    @classmethod
    def checked(cls, policy: Any, **given: Any) -> CacheSettings:
        """Check every setting that stands on its own.

        Raises:
            SettingError: The first broken rule, named `cache.<setting>`.
        """
        factory = None
        if isinstance(policy, str):
            require_one_of("cache.policy", policy, POLICIES)
        elif callable(policy):
            factory, policy = policy, getattr(policy, "__name__", type(policy).__name__)
        else:
            raise SettingError.broken("cache.policy", "a name or a function from slots to a policy", policy)
        for name in given:
            require_one_of("cache.semantics", name, (*SEMANTICS, "options"))
        given = Semantics().keywords() | given
        if not isinstance(given["scope"], str):
            given |= {"scope": "split", "split": _split(given["scope"])}
        else:
            require_one_of("cache.scope", given["scope"], SCOPES)
        allowed = {
            "accesses": ACCESSES,
            "replay": REPLAYS,
            "prefill": PREFILLS,
            "count": COUNTS,
            "reset": RESETS,
            "admission": ADMISSIONS,
        }
        for name, words in allowed.items():
            if not isinstance(given[name], str):
                raise SettingError.broken(f"cache.{name}", "one of " + ", ".join(sorted(words)), given[name])
            require_one_of(f"cache.{name}", given[name], words)
        batch = given["batch"]
        if isinstance(batch, bool) or not isinstance(batch, int | np.integer) or batch < 1:
            raise SettingError.broken("cache.batch", "a whole number of sequences >= 1", batch)
        settings = cls(policy=policy, factory=factory, **given | {"batch": int(batch)})
        settings._check_together()
        return settings

    def _check_together(self) -> None:
        if self.factory is not None:
            if self.options:
                raise SettingError.broken("cache.options", "left out for a policy of your own", self.options)
            return
        own = self.kind.admission
        if own is not None and self.admission != "always":
            rule = f"left out for {self.policy}, which settles it itself"
            raise SettingError.broken("cache.admission", rule, self.admission)
        if self.admission == "bypass" and self.policy in ("slru", "arc", "sieve"):
            rule = f"always or whole for {self.policy}, which does not rank a newcomer among the others"
            raise SettingError.broken("cache.admission", rule, self.admission)

    @property
    def kind(self) -> PolicyKind:
        """The policy as the registry knows it."""
        return POLICIES[self.policy]

    @property
    def admits(self) -> str:
        """Which misses are admitted: `always`, `whole`, `bypass` or `never`."""
        return self.admission if self.factory is not None else self.kind.admission or self.admission

    @property
    def pooled(self) -> bool:
        """Whether all layers share one pool."""
        return self.scope == "model"

    @property
    def sequential(self) -> bool:
        """Whether each expert is an event of its own."""
        return self.replay == "sequential"

    def told(self) -> dict[str, Any]:
        """Return the settings as a report tells them."""
        return {"policy": self.policy} | self.keywords() | {"admission": self.admits}


def _split(given: Any) -> tuple[int, ...]:
    rule = "layer, model, or whole slots >= 0 for each layer"
    try:
        slots = list(given)
    except TypeError:
        raise SettingError.broken("cache.scope", rule, given) from None
    for number in slots:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 0:
            raise SettingError.broken("cache.scope", rule, number)
    return tuple(int(number) for number in slots)
