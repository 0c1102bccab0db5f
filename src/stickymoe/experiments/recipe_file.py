"""Recipes as TOML files: found by path or by the name of a shipped one, read with overrides, checked whole, written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from stickymoe.core.errors import SettingError
from stickymoe.core.files import whole_file
from stickymoe.core.settings import nearest
from stickymoe.experiments.recipe import Recipe

TABLES = tuple(name for name, field in Recipe.model_fields.items() if isinstance(field.default, BaseModel))
AS_TABLE = "write a line [{}] with its keys below it"
WORDING = {  # pydantic's words and ours, longer ones first
    "Input should be ": "",
    "Value error, must be ": "",
    "greater than or equal to": ">=",
    "less than or equal to": "<=",
    "greater than": ">",
    "less than": "<",
    "String should have at least 1 character": "a text that is not empty",
    "a valid tuple": "a list",
}


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file, or a shipped recipe by name, and apply `table.key=value` overrides.

    Raises:
        SettingError: No such file, not TOML, an unknown key (the nearest known one is named) or a broken rule.
    """
    file = _find(Path(path))
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"recipe {file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"recipe {file} is not valid TOML: {_one_line(error)}") from None
    content.setdefault("name", file.stem)
    return build_recipe(content, overrides)


def build_recipe(content: dict[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """Check a recipe's tables and return it; overrides win. Raises `SettingError`, one line, for the first fault."""
    content = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    for override in overrides:
        _apply(content, override)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise SettingError(_first_fault(error)) from None


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the resolved recipe as TOML, whole or not at all."""
    content = recipe.model_dump(mode="json", exclude_none=True)
    lines = [f"{key} = {_toml(value)}" for key, value in content.items() if key not in TABLES]
    for table in TABLES:
        lines += ["", f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in content[table].items())]
    with whole_file(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with the package, by name."""
    installed = Path(str(resources.files("stickymoe.experiments"))) / "recipes"
    folder = installed if installed.is_dir() else Path(__file__).parents[3] / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if path.stem in shipped and path.parent.name in ("", "recipes") and path.suffix in ("", ".toml"):
        return shipped[path.stem]
    if path.is_dir():
        way_out = f"give {path / 'recipe.toml'}" if (path / "recipe.toml").is_file() else "give a TOML file"
        raise SettingError(f"recipe {path} is a folder; {way_out}")
    hint = nearest(path.stem, shipped) or "shipped recipes: " + ", ".join(shipped)
    raise SettingError(f"recipe {path} not found; {hint}")


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


def _first_fault(error: ValidationError) -> str:
    fault = error.errors()[0]
    where = [str(part) for part in fault["loc"]]
    name = ".".join(where)
    if fault["type"] == "extra_forbidden":
        known = [*_keys(where[:-1])]
        inside = f"{where[0]}." if len(where) > 1 else ""
        elsewhere = [f"{table}.{where[-1]}" for table in TABLES if where[-1] in _keys([table])]
        hint = nearest(where[-1], known) or (f"did you mean {elsewhere[0]!r}?" if elsewhere else "")
        return f"recipe key {name} is unknown; {hint or f'known keys: {inside}' + f', {inside}'.join(known)}"
    if len(where) == 1 and where[0] in TABLES:
        return str(SettingError.broken(name, "a table", fault["input"], AS_TABLE.format(name)))
    rule = fault["msg"]
    for theirs, ours in WORDING.items():
        rule = rule.replace(theirs, ours)
    return str(SettingError.broken(name, rule, fault["input"]))


def _keys(path: Sequence[str]) -> dict[str, Any]:
    table: Any = Recipe
    for part in path:
        table = table.model_fields[part].annotation
    return dict(table.model_fields)


def _toml(value: Any) -> str:
    """Write strings, numbers, booleans and flat lists; JSON's form is TOML's but for DEL, which TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
