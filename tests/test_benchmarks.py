"""Every script under benchmarks/ starts: what it imports is there, and `--help` says what it is for."""

import ast
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_starts(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(FOLDER)  # run_path, given a file, does not add its folder as a start by name does
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    assert told.splitlines()[0] in capsys.readouterr().out


def test_the_scripts_are_found():
    assert len(SCRIPTS) >= 10
