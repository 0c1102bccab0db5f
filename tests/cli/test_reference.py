"""The generated page, and that every help shows an example."""

import shlex
from pathlib import Path

import click
import pytest

from stickymoe.cli import main
from stickymoe.cli.reference import _commands, reference_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
COMMANDS = dict(_commands(main, ("stickymoe",)))


def test_the_committed_page_is_what_the_commands_say():
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "run python -m stickymoe.cli.reference docs/cli.md"


def test_the_page_has_every_command():
    assert {" ".join(path[1:]) for path in COMMANDS} == {
        "", "demo", "sweep", "report", "data", "data prepare", "train", "tune", "evaluate", "generate", "export",
        "compare", "trace", "trace info", "trace head", "trace convert", "trace record", "calibrate", "measure",
        "simulate", "diagnose",
    }  # fmt: skip
    page = reference_page()
    assert all(f"## `{' '.join(path)}`" in page for path in COMMANDS)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_help_shows_a_command_line_that_its_own_parser_takes(path):
    text = COMMANDS[path].help
    examples = [shlex.split(line) for line in text.splitlines() if line.strip().startswith("stickymoe ")]
    assert examples
    for words in examples:
        command = main
        words = words[1:]
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)


@pytest.mark.parametrize("path", COMMANDS)
def test_every_option_is_explained(path):
    for parameter in COMMANDS[path].params:
        assert isinstance(parameter, click.Argument) or parameter.help
