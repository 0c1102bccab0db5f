"""The model under torch.compile, in a process without the type checks, which dynamo cannot trace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    ("eager", {}),
    ("grouped_mm", {}),
    ("grouped_mm", {"router_type": "hysteresis", "router_window": 2}),
    ("grouped_mm", {"router_type": "trajectory", "router_span": 3}),
    ("grouped_mm", {"router_type": "hard_window", "router_recursive": True, "router_input": "attended"}),
]


@pytest.mark.slow
def test_the_compiled_model_equals_the_plain_one():
    script = Path(__file__).with_name("compiled.py")
    # one process for all: most of its time goes into starting the compiler
    done = subprocess.run(
        [sys.executable, script, json.dumps(CASES)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.split() == ["equal"] * len(CASES), done.stderr
