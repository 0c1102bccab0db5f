"""The objective compiles into one graph, without a break, and gives the same values and gradients."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_compiled_and_eager_agree_in_value_and_gradient():
    # one length to machine code; of two the second is traced for any length, which needs no machine code to be wrong
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("compiled.py"), "inductor:9", "eager:8,13"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stdout == "equal\n", run.stderr
