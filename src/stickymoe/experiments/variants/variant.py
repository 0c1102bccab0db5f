"""What a variant is: a named change to a recipe, and how two of them go together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stickymoe.core.errors import SettingError
from stickymoe.experiments.recipe import EXPERT_COUNTS, Recipe
from stickymoe.experiments.recipe_file import build_recipe


@dataclass(frozen=True)
class Variant:
    """A named change to a recipe.

    Attributes:
        name: Key on the command line and folder name.
        label: Name in tables and figures.
        overrides: `table.key` to value.
        scaled: `table.key` to a factor on the recipe's whole number; the result is at least 1.
        dense: Whether the model keeps only k experts, the control for what experts gain.
    """

    name: str
    label: str
    overrides: dict[str, Any] = field(default_factory=dict)
    scaled: dict[str, float] = field(default_factory=dict)
    dense: bool = False

    @property
    def starts_from(self) -> str | None:
        """Name of the variant whose trained model this one begins with; it has to be trained first."""
        name: str | None = self.overrides.get("training.start_from")
        return name

    def apply(self, recipe: Recipe) -> Recipe:
        """Return the recipe of this variant; everything it does not name stays as it is.

        Raises:
            SettingError: The result breaks a rule.
        """
        content = recipe.model_dump(mode="json", exclude_none=True)
        content |= {"name": self.name, "label": self.label}
        for key, factor in self.scaled.items():
            table, name = key.split(".")
            content[table][name] = max(1, round(content[table][name] * factor))
        for key, value in self.overrides.items():
            table, name = key.split(".")
            content[table][name] = value
        if self.dense:
            model = content["model"]
            key = next((name for name in EXPERT_COUNTS if name in model), EXPERT_COUNTS[0])
            model[key] = model.get("num_experts_per_tok", 2)
        return build_recipe(content)

    def __add__(self, other: Variant) -> Variant:
        """Return both changes in one variant.

        Raises:
            SettingError: They want different values of one key.
        """
        for key in self.overrides.keys() & other.overrides.keys():
            if self.overrides[key] != other.overrides[key]:
                found = f"{self.overrides[key]!r} and {other.overrides[key]!r}"
                raise SettingError(f"{self.name} and {other.name} cannot go together: {key} would be both {found}")
        return Variant(
            f"{self.name}-{other.name}",
            f"{self.label} + {other.label}",
            self.overrides | other.overrides,
            self.scaled | other.scaled,
            self.dense or other.dense,
        )
