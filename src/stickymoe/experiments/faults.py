"""What pydantic found wrong with a file's tables, as one line in the house's wording."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest

AS_TABLE = "write a line [{}] with its keys below it"
_WORDING = {  # pydantic's words and ours, longer ones first
    "Input should be ": "",
    "Value error, must be ": "",
    "greater than or equal to": ">=",
    "less than or equal to": "<=",
    "greater than": ">",
    "less than": "<",
    "String should have at least 1 character": "a text that is not empty",
    "Tuple should have at least 1 item after validation, not 0": "a list that is not empty",
    "Dictionary should have at least 1 item after validation, not 0": "a table that is not empty",
    "a valid tuple": "a list",
    "a valid dictionary": "a table",
}


def first_fault(error: ValidationError, model: type[BaseModel], what: str) -> SettingError:
    """Return the first fault: an unknown key with the nearest known one, a missing key, or a broken rule.

    Args:
        error: What pydantic raised.
        model: Whose fields are the known keys.
        what: What the file is, as `recipe`.
    """
    fault = error.errors()[0]
    where = [str(part) for part in fault["loc"]]
    name = ".".join(where)
    if fault["type"] == "extra_forbidden":
        return SettingError(f"{what} key {name} is unknown; {_nearest_key(where, model)}")
    if fault["type"] == "missing":
        return SettingError(f"{what} key {name} is missing; add it")
    if fault["type"] == "model_type":
        return SettingError.broken(name, "a table", fault["input"], AS_TABLE.format(name))
    rule = fault["msg"]
    for theirs, ours in _WORDING.items():
        rule = rule.replace(theirs, ours)
    return SettingError.broken(name, rule, fault["input"])


def tables_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the names of the fields that are tables."""
    return tuple(name for name in model.model_fields if _table(model, [name]) is not None)


def _nearest_key(where: Sequence[str], model: type[BaseModel]) -> str:
    table = _table(model, where[:-1]) or model
    known = list(table.model_fields)
    inside = "".join(f"{part}." for part in where[:-1])
    tables = tables_of(model)
    elsewhere = [f"{name}.{where[-1]}" for name in tables if where[-1] in (_table(model, [name]) or model).model_fields]
    hint = nearest(where[-1], known) or (f"did you mean {elsewhere[0]!r}?" if elsewhere else "")
    return hint or f"known keys: {inside}" + f", {inside}".join(known)


def _table(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Return the table at a path of keys; a table of tables has the same keys under every name."""
    found: Any = model
    for part in path:
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(part)
            found = field.annotation if field else None
        elif typing.get_origin(found) is dict:
            found = typing.get_args(found)[1]
        else:
            return None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None
