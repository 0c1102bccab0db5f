"""What a result says of where it was made."""

import json
import os
import subprocess
from importlib.metadata import version

from stickymoe.experiments import environment
from stickymoe.experiments.environment import code_version, commit, hardware, usable_cores, versions


def test_the_facts_are_json_and_name_processor_cores_and_versions():
    facts = json.loads(json.dumps({**hardware(), **versions()}))
    assert facts["processor"]
    assert facts["cores"] == usable_cores() >= 1
    assert facts["torch"] == version("torch")


def test_cores_are_counted_where_a_system_has_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert usable_cores() == (os.cpu_count() or 1)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_the_commit_is_the_checkouts_with_a_plus_where_files_differ(monkeypatch, tmp_path):
    here = tmp_path / "src" / "stickymoe" / "experiments" / "environment.py"
    here.parent.mkdir(parents=True)
    here.write_text("x")
    monkeypatch.setattr(environment, "__file__", str(here))
    assert commit() == "not a checkout"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "m"]):
        subprocess.run([*git, *words], check=True)
    clean = commit()
    assert len(clean) == 10
    here.write_text("y")
    assert commit() == clean + "+"


def test_the_code_version_changes_with_any_source_and_with_nothing_else(monkeypatch, tmp_path):
    here = tmp_path / "experiments" / "environment.py"
    here.parent.mkdir()
    here.write_text("x = 1")
    monkeypatch.setattr(environment, "__file__", str(here))
    fresh = code_version.__wrapped__
    before = fresh()
    (tmp_path / "notes.txt").write_text("no source")
    assert fresh() == before
    (tmp_path / "other.py").write_text("")
    assert fresh() != before
