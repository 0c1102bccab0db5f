"""The model under torch.compile, in a process without the type checks, which dynamo cannot trace."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["eager", "grouped_mm"])
def test_the_compiled_model_equals_the_plain_one(implementation):
    script = Path(__file__).with_name("compiled.py")
    done = subprocess.run(
        [sys.executable, script, implementation],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "equal", done.stderr
