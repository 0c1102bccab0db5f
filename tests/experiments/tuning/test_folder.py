"""A tuning's folder takes nothing over that is not its own, and goes on only with what it began with."""

import json

import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.experiments.tuning.folder import TuneFolder

ASKED = {"schema": 1, "model": "m", "lags": (1, 2), "tokens": 100}


def test_a_new_or_empty_folder_is_taken_and_another_is_not(tmp_path):
    TuneFolder(tmp_path / "new", resume=False).begin(ASKED)
    assert json.loads((tmp_path / "new" / "asked.json").read_text())["lags"] == [1, 2]
    (tmp_path / "empty").mkdir()
    TuneFolder(tmp_path / "empty", resume=False)
    with pytest.raises(SettingError, match=r"out must be a new or empty folder, got .*new'; name another, or resume"):
        TuneFolder(tmp_path / "new", resume=False)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SettingError, match=r"out must be a folder, got .*; a file is in the way, name another"):
        TuneFolder(tmp_path / "file", resume=False)


def test_resuming_wants_a_tuning_and_the_same_one(tmp_path):
    with pytest.raises(SettingError, match=r"out must be a tuning to resume, with asked.json, got .*; leave --resume"):
        TuneFolder(tmp_path, resume=True)
    TuneFolder(tmp_path / "run", resume=False).begin(ASKED)
    TuneFolder(tmp_path / "run", resume=True).begin(ASKED)
    with pytest.raises(SettingError, match=r"^tokens must be as when .* began, got 200, it began with 100; resume"):
        TuneFolder(tmp_path / "run", resume=True).begin(ASKED | {"tokens": 200})
    assert json.loads((tmp_path / "run" / "asked.json").read_text())["tokens"] == 100


@pytest.mark.parametrize("content", ["", "[1]", '{"tokens": '])
def test_what_is_damaged_is_told(tmp_path, content):
    TuneFolder(tmp_path / "run", resume=False).begin(ASKED)
    (tmp_path / "run" / "asked.json").write_text(content)
    with pytest.raises(DataError, match=r"asked.json .*; start again in another folder"):
        TuneFolder(tmp_path / "run", resume=True).begin(ASKED)


def test_only_a_resumed_folder_knows_what_was_measured(tmp_path):
    folder = TuneFolder(tmp_path / "run", resume=False)
    folder.begin(ASKED)
    (tmp_path / "run" / "baseline").mkdir()
    (tmp_path / "run" / "baseline" / "measured.json").write_text('{"nats": []}')
    assert folder.measured("baseline") is None
    again = TuneFolder(tmp_path / "run", resume=True)
    assert again.measured("tuned") is None
    with pytest.raises(DataError, match="must hold what a tuning measured, 'targets' is missing; start again"):
        again.measured("baseline")
