"""Recipes as TOML files: found by path or by the name of a shipped one, read with overrides, checked whole, written."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stickymoe.core.errors import SettingError
from stickymoe.core.files import whole_file
from stickymoe.experiments.faults import AS_TABLE, first_fault, tables_of
from stickymoe.experiments.recipe import Recipe
from stickymoe.experiments.shipped import find_file, read_toml, shipped

TABLES = tables_of(Recipe)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, or a shipped recipe by name, and apply `table.key=value` overrides.

    Raises:
        SettingError: No such file, not TOML, an unknown key (the nearest known one is named) or a broken rule.
    """
    file = find_file(Path(path), "recipes", "recipe")
    return build_recipe(read_toml(file, "recipe"), overrides)


def build_recipe(content: dict[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """Check a recipe's tables and return it; overrides win. Raises `SettingError`, one line, for the first fault."""
    content = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    for override in overrides:
        _apply(content, override)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise first_fault(error, Recipe, "recipe") from None


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the resolved recipe as TOML, whole or not at all."""
    text = recipe_text(recipe.model_dump(mode="json", exclude_none=True))
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def recipe_text(content: dict[str, Any]) -> str:
    """Return a recipe's keys and tables as TOML, also those of another version; what is None is left out."""
    plain = {key: value for key, value in content.items() if not isinstance(value, dict)}
    lines = _lines(plain)
    for name in (name for name in content if name not in plain):
        lines += ["", f"[{name}]", *_lines(content[name])]
    return "\n".join(lines) + "\n"


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package, by name."""
    return shipped("recipes")


def _apply(content: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not separator or not 1 <= len(parts) <= 2 or not all(parts):
        raise SettingError.broken("--set", "of the form table.key=value", override, "as in objective.consistency=0.1")
    if len(parts) == 1 and parts[0] in TABLES:
        raise SettingError.broken("--set", f"of the form {parts[0]}.KEY=VALUE", override, "a whole table cannot be set")
    target = content
    for part in parts[:-1]:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            raise SettingError.broken(part, "a table", target, AS_TABLE.format(part))
    target[parts[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    """Read a value as TOML; what is none is a string, so that words and paths need no quotes."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text  # a newline could smuggle in more keys


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_toml(value)}" for key, value in table.items() if value is not None]


def _key(key: str) -> str:
    """Write a key, in quotes where TOML wants them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _toml(value: Any) -> str:
    """Write a value; JSON's form of scalars is TOML's but for DEL, which TOML wants escaped."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
