"""The objective compiles into one graph, without a break, and gives the same values and gradients."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["inductor", "9"], ["aot_eager", "8", "13"]], ids=lambda a: a[0])
def test_compiled_and_eager_agree_in_value_and_gradient(arguments):
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiled.py"), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stdout == "equal\n", run.stderr
