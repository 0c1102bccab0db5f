"""A sweep is a TOML file: which variants, at which sizes, with which seeds. Its keys and their rules.

No `from __future__ import annotations` here: pydantic reads the field types at run time.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from stickymoe.experiments.faults import first_fault
from stickymoe.experiments.recipe import Table, Text, folder_name
from stickymoe.experiments.shipped import find_file, read_toml, shipped


def _once_each(values: tuple[object, ...]) -> tuple[object, ...]:
    if len(set(values)) < len(values):
        raise ValueError("must be a list in which each stands once")
    return values


Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Overrides = Annotated[tuple[Text, ...], Field(strict=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
FolderName = Annotated[str, AfterValidator(folder_name)]


class SizeTable(Table):
    """A size: the recipe that all variants of it change.

    Attributes:
        recipe: A recipe file or the name of a shipped one.
        overrides: `table.key=value` changes to it, after the sweep's own.
    """

    recipe: Text
    overrides: Overrides = ()


class Sweep(Table):
    """A grid of runs.

    Attributes:
        name: Name of the sweep, and of its folder where no other is given; the file's stem if not given.
        title: Heading of its report.
        note: What a reader must know wherever a number of it is shown, such as that the runs are short.
        variants: Names of variants or of their families, or `all`; see `stickymoe.experiments.variants`.
        seeds: The first is run whole before the second begins.
        split: What is measured at the end.
        corpora: Corpora to choose from: the first whose splits are at hand is taken. The recipes' own if empty.
        overrides: `table.key=value` changes to the recipes of all sizes.
        time_limit_minutes: A run that takes longer is asked to save and end; the same command goes on with it.
        sizes: The sizes by name.
    """

    name: FolderName
    title: Text | None = None
    note: Text | None = None
    variants: Annotated[tuple[Text, ...], Field(strict=False, min_length=1), AfterValidator(_once_each)]
    seeds: Annotated[tuple[Seed, ...], Field(strict=False, min_length=1), AfterValidator(_once_each)] = (42,)
    split: Text = "test"
    corpora: Texts = ()
    overrides: Overrides = ()
    time_limit_minutes: Annotated[float, Field(gt=0)] | None = None
    sizes: Annotated[dict[FolderName, SizeTable], Field(min_length=1)]


def load_sweep(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """Read a sweep file, or a shipped sweep by name; `overrides` change its recipes after its own.

    Raises:
        SettingError: No such file, not TOML, an unknown key (the nearest known one is named) or a broken rule.
    """
    content = read_toml(find_file(Path(path), "sweeps", "sweep"), "sweep")
    try:
        sweep = Sweep.model_validate(content)
    except ValidationError as error:
        raise first_fault(error, Sweep, "sweep") from None
    return sweep.model_copy(update={"overrides": (*sweep.overrides, *overrides)})


def shipped_sweeps() -> dict[str, Path]:
    """Return the sweeps that come with the package, by name."""
    return shipped("sweeps")
