"""Every example runs as its users run it, with small settings."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = [pytest.mark.hf, pytest.mark.slow]


def run(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_locality_terms_in_a_loop_of_ones_own():
    printed = run("plug_into_your_loop.py", "--steps", "40")
    before, after = map(float, re.search(r"switch rate ([\d.]+) -> ([\d.]+)", printed).groups())
    assert after < before
    assert "consistency" in printed


def test_routers_tuned_beside_a_control():
    printed = run("tune_router.py")
    assert all(word in printed for word in ("CE only", "tuned costs, nats", "unchanged: all else, SHA-256"))


@pytest.mark.parametrize("packing", [[], ["--packing"]])
def test_supervised_fine_tuning_with_trl(tmp_path, packing):
    for package in ("trl", "datasets"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    settings = ["--steps", "10", "--cpu", "--learning-rate", "3e-3", *packing]
    printed = run("trl_sft.py", "--out", str(tmp_path / "tuned"), *settings)
    before, after = map(float, re.search(r"consistency ([\d.]+) -> ([\d.]+)", printed).groups())
    assert after < before
    assert (tmp_path / "tuned" / "model.safetensors").exists()


def test_every_example_has_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []
