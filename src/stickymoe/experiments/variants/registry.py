"""All variants of the comparison, by name and by family. A new one costs a file and a line here."""

from __future__ import annotations

from collections.abc import Iterable

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.variants.boundary import BOUNDARIES, DOCUMENT_RESETS
from stickymoe.experiments.variants.controls import DENSE, VANILLA
from stickymoe.experiments.variants.fixed import HASH, TRAJECTORIES
from stickymoe.experiments.variants.hard_window import HARD_WINDOWS, RECURSIVE_HARD_WINDOWS
from stickymoe.experiments.variants.hysteresis import HYSTERESES, RECURSIVE_HYSTERESES, SOFT_HYSTERESES
from stickymoe.experiments.variants.oracle import ORACLE
from stickymoe.experiments.variants.remoe import REMOE
from stickymoe.experiments.variants.reuse import REUSES
from stickymoe.experiments.variants.shared_experts import COMBINED, CROSS_LAYER, SHARED
from stickymoe.experiments.variants.soft import SOFTS
from stickymoe.experiments.variants.soft_hard import SOFT_HARDS
from stickymoe.experiments.variants.variant import Variant

FAMILIES: dict[str, tuple[Variant, ...]] = {
    "vanilla": (VANILLA,),
    "dense": (DENSE,),
    "soft": SOFTS,
    "soft-hard": SOFT_HARDS,
    "hard-window": HARD_WINDOWS,
    "hard-window-recursive": RECURSIVE_HARD_WINDOWS,
    "hysteresis": HYSTERESES,
    "hysteresis-recursive": RECURSIVE_HYSTERESES,
    "soft-hysteresis": SOFT_HYSTERESES,
    "reuse": REUSES,
    "remoe": (REMOE,),
    "oracle": (ORACLE,),
    "shared": SHARED,
    "shared-cross-layer": CROSS_LAYER,
    "shared-combined": COMBINED,
    "trajectory": TRAJECTORIES,
    "hash": (HASH,),
    "boundary": BOUNDARIES,
    "document-reset": DOCUMENT_RESETS,
}
VARIANTS: dict[str, Variant] = {variant.name: variant for grid in FAMILIES.values() for variant in grid}


def choose_variants(names: Iterable[str]) -> list[Variant]:
    """Return the variants of these names; a family's name stands for its whole grid, `all` for everything.

    Each comes once, in the order of its first mention.

    Raises:
        SettingError: A name is unknown; the nearest known one is named.
    """
    chosen: dict[str, Variant] = {}
    for name in names:
        if name == "all":
            chosen |= {variant: found for variant, found in VARIANTS.items() if variant not in chosen}
        elif name in VARIANTS:
            chosen.setdefault(name, VARIANTS[name])
        elif name in FAMILIES:
            chosen |= {variant.name: variant for variant in FAMILIES[name] if variant.name not in chosen}
        else:
            known = [*FAMILIES, *VARIANTS]
            hint = nearest(name, known) or "known are " + ", ".join(FAMILIES)
            raise SettingError(f"variant {name!r} is unknown; {hint}")
    return list(chosen.values())


def resolve(recipe: Recipe, variant: str | Variant) -> Recipe:
    """Return the recipe of a variant, given by itself or by name, on the base `recipe`.

    Raises:
        SettingError: The name is unknown, or the result breaks a rule.
    """
    if isinstance(variant, str):
        if variant not in VARIANTS:
            hint = nearest(variant, VARIANTS) or "known are " + ", ".join(VARIANTS)
            raise SettingError(f"variant {variant!r} is unknown; {hint}")
        variant = VARIANTS[variant]
    return variant.apply(recipe)
