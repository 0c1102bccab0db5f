"""What ends a command: one line and exit code 2 for what a user can mend, a traceback for what is our fault."""

import errno
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from stickymoe.cli.group import MENDABLE, StickyGroup
from stickymoe.core.errors import SettingError
from stickymoe.training import Interrupted


def ends_with(error):
    group = StickyGroup("stickymoe")

    @group.command()
    def work():
        raise error

    return CliRunner().invoke(group, ["work"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SettingError.broken("x", ">= 1", 0, "raise\nit"), "error: x must be >= 1, got 0; raise it"),
        (click.UsageError("no such thing."), "error: no such thing; see stickymoe work --help"),
        (
            OSError(errno.EACCES, "Permission denied", "/a/b"),
            "error: /a/b: permission denied; choose a place that may be read and written",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "error: no space left on device; free some space and run the same command again",
        ),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_exit_code_2(error, line):
    done = ends_with(error)
    assert done.stderr.splitlines() == [line]
    assert done.stdout == ""
    assert done.exit_code == 2


@pytest.mark.parametrize("number", MENDABLE)
def test_every_refusal_of_the_system_has_a_way_out(number):
    done = ends_with(OSError(number, os.strerror(number), "/a/b"))
    assert done.stderr.startswith("error: /a/b: ")
    assert done.stderr.rstrip().endswith(MENDABLE[number])
    assert done.exit_code == 2


@pytest.mark.parametrize("error", [ValueError("x"), FileNotFoundError(errno.ENOENT, "x"), RuntimeError("x")])
def test_our_own_faults_keep_their_traceback(error):
    assert ends_with(error).exception is error


def test_ctrl_c_ends_with_130_and_says_what_the_command_said_last():
    done = ends_with(KeyboardInterrupt("saved; go on with: x"))
    assert done.stderr.splitlines()[-1] == "saved; go on with: x"
    assert done.exit_code == 130
    assert ends_with(KeyboardInterrupt()).stderr.splitlines()[-1] == "interrupted"
    assert ends_with(click.Abort()).exit_code == 130


@pytest.mark.parametrize("number", [2, 15])
def test_a_stop_on_request_ends_with_128_plus_the_signal(number, tmp_path):
    done = ends_with(Interrupted(number, 3, tmp_path))
    assert done.exit_code == 128 + number
    assert done.stderr.startswith("stopped by SIG")
    assert len(done.stderr.splitlines()) == 1


def test_success_ends_with_0():
    from stickymoe.cli import main

    assert CliRunner().invoke(main, ["--version"]).exit_code == 0


def test_no_command_shows_the_help_and_an_unknown_one_the_nearest():
    from stickymoe.cli import main

    done = CliRunner().invoke(main, [])
    assert "Commands:" in done.stderr
    assert done.exit_code == 2
    done = CliRunner().invoke(main, ["evalute"])
    assert done.stderr.startswith("error: No such command 'evalute'. Did you mean 'evaluate'?")
    assert len(done.stderr.splitlines()) == 1


LIGHT = """
import sys
sys.modules.update(torch=None, transformers=None, numpy=None, pyarrow=None, matplotlib=None, pydantic=None, rich=None)
sys.argv = ["stickymoe", *sys.argv[1:]]
from stickymoe.cli import main
main()
"""


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["--version"]])
def test_help_needs_no_heavy_library(words):
    done = subprocess.run([sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_python_m_is_the_command_line_and_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "stickymoe", "--help"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert "stickymoe demo" in subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_output_to_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-m", "stickymoe", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.stderr.splitlines() == [
        "error: no space left on device; free some space and run the same command again"
    ]
    assert done.returncode == 2
