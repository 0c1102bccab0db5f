"""Capture under torch.compile, in a process of its own: a checked signature cannot be traced."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compiled.py")
pytestmark = pytest.mark.slow
FAMILIES = ["mixtral", "stickymoe"]  # more of them, with a loss, in tests/training/test_gradient_equality.py


@pytest.fixture(scope="module")
def found():
    """What the script found, by case and family; one process for all, since starting torch takes long."""
    done = subprocess.run([sys.executable, str(SCRIPT), *FAMILIES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (line.split(" ", 2) for line in done.stdout.splitlines())
    return {(case, family): rest for case, family, rest in lines}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_graph_with_hooks_gives_equal_routing_and_gradients_and_compiles_once(found, family):
    assert found["whole_graph", family] == "equal"


def test_hooks_that_come_after_compilation_are_missed_loudly_and_work_after_a_reset(found):
    missed, after = found["late", "mixtral"].split(" | ")
    assert "attach before torch.compile" in missed
    assert after == "captured 3"


def test_layers_compiled_before_the_hooks_are_missed_loudly(found):
    assert found["layers", "mixtral"].startswith("no router ran")


def test_more_than_one_pass_can_be_kept_with_a_break_in_the_graph(found):
    assert found["kept", "mixtral"] == "[3, 3, 3]"
