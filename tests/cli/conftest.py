"""One trained run for all commands, made by `stickymoe train` itself, and how to call a command in this process."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

TINY_RUN = Path(__file__).resolve().parents[1] / "experiments" / "tiny_run.py"


def call(*words):
    from stickymoe.cli import main

    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with `tiny.toml`, its `text`, a `cache`, `run` and `said`, what the command printed."""
    spec = importlib.util.spec_from_file_location("stickymoe_tests_tiny_run", TINY_RUN)
    tiny_run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny_run)
    place = tmp_path_factory.mktemp("trained")
    recipe = tiny_run.write_recipe(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STICKYMOE_CACHE", str(place / "cache"))
        patch.setenv("COLUMNS", "60")
        done = call("train", recipe, "--out", place / "run", "--split", "test")
    assert done.exit_code == 0, done.output
    (place / "said").write_text(done.stdout, encoding="utf-8")
    return place


@pytest.fixture
def stickymoe(trained, monkeypatch, tmp_path):
    """A function: words -> what the command did. It works in an empty folder and shares the run's cache."""
    monkeypatch.setenv("STICKYMOE_CACHE", str(trained / "cache"))
    monkeypatch.chdir(tmp_path)
    return call


@pytest.fixture
def run_copy(trained, tmp_path):
    """A copy of the trained run, to be changed."""
    return shutil.copytree(trained / "run", tmp_path / "run")
