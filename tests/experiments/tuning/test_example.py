"""The example of tuning runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.hf
@pytest.mark.slow
def test_the_example_prints_a_table_and_the_proof(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "tune_router.py"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("CE only", "tuned costs, nats", "unchanged: all else, SHA-256"))
    assert not list(tmp_path.iterdir())
