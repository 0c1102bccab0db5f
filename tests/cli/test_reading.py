"""What the commands that read traces share: formats by name, and files that are in none of them."""

import pytest
from click.testing import CliRunner

from stickymoe.cli import main
from stickymoe.traces.importers.registry import IMPORTERS

READERS = [("trace", "info"), ("trace", "head"), ("measure",), ("simulate",), ("diagnose",)]


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("command", READERS)
def test_every_reader_lists_the_formats(command):
    done = run(*command, "--formats")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(IMPORTERS)


def test_a_file_in_no_format_is_one_line_that_says_where_all_are(tmp_path):
    (tmp_path / "notes.txt").write_text("these are my notes\n")
    done = run("trace", "info", tmp_path / "notes.txt")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert "notes.txt must be a trace in a known format, found 19 bytes beginning b'these are my notes" in line
    assert line.endswith("stickymoe trace info --formats lists them")
    assert len(line) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(("name", "near"), [("vlm", "did you mean 'vllm'? "), ("colibry", "'colibri'"), ("?", "")])
def test_an_unknown_format_names_the_nearest(tmp_path, name, near):
    done = run("trace", "info", tmp_path / "any", "--format", name)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert f"format must be one of the {len(IMPORTERS)} that are read, got '{name}'; " in line
    assert near in line
    assert line.endswith("stickymoe trace info --formats lists them")
