"""The page on trace files says what the code does."""

from pathlib import Path

import pytest

from stickymoe.traces.exporters.registry import EXPORTERS
from stickymoe.traces.importers.aliases import ALIASES
from stickymoe.traces.importers.importer import ReadOptions
from stickymoe.traces.importers.registry import IMPORTERS
from stickymoe.traces.schema import COLUMNS, VERSION

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "trace-format.md").read_text()


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_format_has_its_row(name):
    what = IMPORTERS[name].what.replace("|", "\\|")
    assert f"| `{name}` | {'yes' if name in EXPORTERS else ''} | {what} |" in PAGE


@pytest.mark.parametrize("what", ALIASES)
def test_every_name_is_in_the_table_of_names(what):
    assert f"| {what.replace('_', ' ')} | {', '.join(f'`{name}`' for name in ALIASES[what])} |" in PAGE


def test_columns_version_and_options_are_those_of_the_code():
    assert f"version **{VERSION}**" in PAGE
    for name, column in COLUMNS.items():
        assert any(row.startswith(f"| `{name}` |") for row in PAGE.splitlines()), name
        assert (column.since == 1) == (f"from version {VERSION}" not in PAGE.split(f"| `{name}` |")[1].split("\n")[0])
    for name in ReadOptions.__dataclass_fields__:
        assert f"`{name}`" in PAGE


def test_the_example_of_larger_than_memory_runs(tmp_path, monkeypatch, capsys):
    from stickymoe.traces import RoutingTrace

    trace = RoutingTrace([[[0, 1]], [[1, 2]], [[2, 0]]], [0, 0, 0], 3, phases=[0, 1, 1], positions=[0, 1, 2])
    monkeypatch.chdir(tmp_path)
    trace.save("long.parquet")
    code = PAGE.split("## Larger than memory")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/trace-format.md", "exec"), {})
    assert RoutingTrace.load("decode.parquet") == trace.select(phase="decode")
    assert capsys.readouterr().out == "3 3\n"
