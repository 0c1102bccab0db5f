"""The variants of the comparison: what each changes in a recipe."""

from __future__ import annotations

from dataclasses import dataclass, field

from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.recipe_file import build_recipe


@dataclass(frozen=True)
class Variant:
    """A named change to a recipe.

    Attributes:
        name: Key on the command line and folder name.
        label: Name in tables and figures.
        overrides: `table.key` to value.
        dense: Whether the model keeps only k experts, the control for what experts gain.
    """

    name: str
    label: str
    overrides: dict[str, float] = field(default_factory=dict)
    dense: bool = False

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe of this variant; everything not named in `overrides` stays as it is."""
        content = recipe.model_dump(mode="json", exclude_none=True)
        content |= {"name": self.name, "label": self.label}
        for key, value in self.overrides.items():
            table, name = key.split(".")
            content[table][name] = value
        if self.dense:
            content["model"]["num_experts"] = content["model"].get("num_experts_per_tok", 2)
        return build_recipe(content)


def soft(coefficient: float) -> Variant:
    """Consistency loss alone. Source: Sticky Routing, eq. 15."""
    return Variant(f"soft-{coefficient:g}", f"Soft λ={coefficient:g}", {"objective.consistency": coefficient})


def soft_hard(coefficient: float, anchor: float, window: int = 4) -> Variant:
    """Consistency and anchor loss. Source: Sticky Routing, eq. 13."""
    return Variant(
        f"soft-hard-{coefficient:g}-{anchor:g}",
        f"Soft-Hard λ={coefficient:g} α={anchor:g}",
        {"objective.consistency": coefficient, "objective.anchor": anchor, "objective.window": window},
    )


VANILLA = Variant("vanilla", "Vanilla")
DENSE = Variant("dense", "Dense control", dense=True)
