"""The model under torch.compile, in a process without the type checks, which dynamo cannot trace."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("implementation", "settings"),
    [
        ("eager", {}),
        ("grouped_mm", {}),
        ("grouped_mm", {"router_type": "hysteresis", "router_window": 2}),
        ("grouped_mm", {"router_type": "trajectory", "router_span": 3}),
        ("grouped_mm", {"router_type": "hard_window", "router_recursive": True, "router_input": "attended"}),
    ],
    ids=["our experts", "grouped_mm", "hysteresis", "trajectory", "recursive"],
)
def test_the_compiled_model_equals_the_plain_one(implementation, settings):
    script = Path(__file__).with_name("compiled.py")
    done = subprocess.run(
        [sys.executable, script, implementation, json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "equal", done.stderr
