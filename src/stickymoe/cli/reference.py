"""The page `docs/cli.md`, generated from the commands themselves: `python -m stickymoe.cli.reference docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

WIDTH = 100
HEAD = """# Command line

Generated from the commands by `python -m stickymoe.cli.reference docs/cli.md`; a test keeps it so. Every failure that
you can mend is one line `error: ...` on standard error with exit code 2. Ctrl-C exits with 130 and says how to go on.
"""


def reference_page() -> str:
    """Return the page: the help of every command, in the order of `stickymoe --help`, groups before their commands."""
    from stickymoe.cli import main

    parts = [HEAD]
    for path, command in _commands(main, ("stickymoe",)):
        context = _context(command, path)
        parts.append(f"## `{' '.join(path)}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _commands(command.commands[name], (*path, name))


def _context(command: click.Command, path: tuple[str, ...]) -> click.Context:
    parent = None
    for name in path[:-1]:
        parent = click.Context(click.Group(name), parent, name, terminal_width=WIDTH)
    return click.Context(command, parent, path[-1], terminal_width=WIDTH, help_option_names=["-h", "--help"])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference_page(), encoding="utf-8")
