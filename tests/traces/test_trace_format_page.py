"""The page on trace files says what the code does."""

from pathlib import Path

from stickymoe.traces.schema import COLUMNS, VERSION

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "trace-format.md").read_text()


def test_columns_and_version_are_those_of_the_code():
    assert f"version **{VERSION}**" in PAGE
    for name, column in COLUMNS.items():
        assert any(row.startswith(f"| `{name}` |") for row in PAGE.splitlines()), name
        assert (column.since == 1) == (f"from version {VERSION}" not in PAGE.split(f"| `{name}` |")[1].split("\n")[0])


def test_the_example_of_larger_than_memory_runs(tmp_path, monkeypatch, capsys):
    from stickymoe.traces import RoutingTrace

    trace = RoutingTrace([[[0, 1]], [[1, 2]], [[2, 0]]], [0, 0, 0], 3, phases=[0, 1, 1], positions=[0, 1, 2])
    monkeypatch.chdir(tmp_path)
    trace.save("long.parquet")
    code = PAGE.split("## Larger than memory")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/trace-format.md", "exec"), {})
    assert RoutingTrace.load("decode.parquet") == trace.select(phase="decode")
    assert capsys.readouterr().out == "3 3\n"
