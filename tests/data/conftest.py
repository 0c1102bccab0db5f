"""What the data tests share: a cache of their own, no network, small corpora, the data beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("STICKYMOE_CACHE", str(folder))
    monkeypatch.delenv("STICKYMOE_DATA", raising=False)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    from stickymoe.data import hub

    def refuse(repository, file, kind):
        raise hub.HubUnreachable("no network in tests")

    monkeypatch.setattr(hub, "download", refuse)


@pytest.fixture
def shared_data():
    if not SHARED_DATA.is_dir():
        pytest.skip("the data folder beside the repository is not there")
    return SHARED_DATA


@pytest.fixture
def letters(tmp_path):
    """A folder of ten small documents, one of them in a subfolder."""
    folder = tmp_path / "letters"
    (folder / "late").mkdir(parents=True)
    for number in range(9):
        (folder / f"{number}.txt").write_text(f"Letter {number}.\r\nDear friend, the weather is fine.\n" * 20, "utf-8")
    (folder / "late" / "9.md").write_text("# Letter 9\nDear friend, here it rains — été.\n" * 20, "utf-8")
    return folder
