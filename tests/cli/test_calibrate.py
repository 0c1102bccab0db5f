"""Measuring this machine into a file that the other commands take."""

import os

import pytest
from click.testing import CliRunner

from stickymoe.cache.calibration import load_calibration
from stickymoe.cli import main


def run(*words):
    return CliRunner().invoke(main, ["calibrate", *map(str, words)])


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="needs positioned reads")
def test_the_measured_machine_is_printed_and_kept(tmp_path):
    out = tmp_path / "machine.json"
    done = run(
        "--expert-bytes", "64KiB", "--folder", tmp_path, "--out", out, "--seconds", 0, "--max-file", "1MiB",
        "--queue-depth", 2, "--device", "none",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = load_calibration(out)
    assert found.expert_bytes == 65536
    assert {link.queue_depth for link in found.links if link.name == "disk-random"} == {2}
    assert "64 KiB" in done.stdout
    assert "disk-random" in done.stdout
    assert sorted(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--expert-bytes", "25%"], "in bytes"),
        (["--expert-bytes", "0"], "calibrate.expert_bytes must be from 1"),
        (["--expert-bytes", "1KiB", "--folder", "absent"], "could not measure in absent: no such file or directory"),
        ([], "--expert-bytes"),
    ],
)
def test_what_cannot_be_measured_is_one_line(words, said):
    done = run(*words)
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert said in line
