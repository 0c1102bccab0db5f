"""Where things are looked for."""

from __future__ import annotations

import sys
from pathlib import Path

from stickymoe.data.places import cache_folder, named_folders, package_folder


def test_the_cache_is_the_argument_then_the_environment_then_home(monkeypatch, tmp_path):
    monkeypatch.setenv("STICKYMOE_CACHE", "~/elsewhere")
    assert cache_folder(tmp_path) == tmp_path
    assert cache_folder() == Path.home() / "elsewhere"
    monkeypatch.delenv("STICKYMOE_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "stickymoe"


def test_named_folders_are_the_users_before_the_caches(monkeypatch, tmp_path):
    assert named_folders("x", tmp_path) == [tmp_path / "raw" / "x"]
    monkeypatch.setenv("STICKYMOE_DATA", str(tmp_path / "mine"))
    assert named_folders("x", tmp_path) == [tmp_path / "mine" / "x", tmp_path / "raw" / "x"]


def test_a_package_is_found_without_being_imported(tmp_path, monkeypatch):
    (tmp_path / "explosive_package").mkdir()
    (tmp_path / "explosive_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert package_folder("explosive_package") == tmp_path / "explosive_package"
    assert "explosive_package" not in sys.modules
    assert package_folder("no_such_package_at_all") is None
