"""Manifests vouch for every byte; damage is named; rotation keeps what is needed."""

import json

import pytest

from stickymoe.core.errors import CheckpointError, StorageError
from stickymoe.training import newest_good_checkpoint
from stickymoe.training.checkpoints import checkpoints_in, rotate, seal, verify, whole_checkpoint


def make(run, step, sealed=True):
    folder = run / f"checkpoint-{step}"
    (folder / "inner").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights" * step)
    (folder / "inner" / "shard").write_bytes(b"shard")
    if sealed:
        seal(folder)
    return folder


def test_the_manifest_names_every_file_with_size_and_checksum(tmp_path):
    manifest = json.loads((make(tmp_path, 3) / "manifest.json").read_text())
    assert manifest["step"] == 3
    assert manifest["files"].keys() == {"model.safetensors", "inner/shard"}
    assert manifest["files"]["model.safetensors"]["bytes"] == 21


def test_steps_count_as_numbers_and_other_folders_do_not_count(tmp_path):
    for step in (9, 10, 100):
        make(tmp_path, step)
    (tmp_path / "checkpoint-old").mkdir()
    (tmp_path / "checkpoint-7").write_text("a file")
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-9", "checkpoint-10", "checkpoint-100"]
    assert newest_good_checkpoint(tmp_path) == tmp_path / "checkpoint-100"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"weightz" * 3),
            "model.safetensors is damaged: its SHA",
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"w"), "must have 21 bytes, got 1"),
        (lambda folder: (folder / "inner" / "shard").unlink(), "inner/shard is missing"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json is damaged"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest.json is damaged"),
        (lambda folder: (folder / "manifest.json").write_text('{"schema": 1, "step": 3, "files": {}}'), "is damaged"),
        (lambda folder: (folder / "manifest.json").unlink(), "no manifest.json, so it was not saved whole"),
    ],
)
def test_damage_is_refused_by_the_name_of_the_file(tmp_path, damage, message):
    folder = make(tmp_path, 3)
    verify(folder)
    damage(folder)
    with pytest.raises(CheckpointError, match=message) as raised:
        verify(folder)
    assert "\n" not in str(raised.value)


def test_a_manifest_that_points_outside_its_folder_is_refused(tmp_path):
    folder = make(tmp_path, 3)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../secret"] = {"bytes": 1, "sha256": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="names files outside its folder"):
        verify(folder)


def test_the_newest_good_checkpoint_comes_with_a_warning_for_every_newer_one(tmp_path, caplog):
    make(tmp_path, 1)
    make(tmp_path, 2)
    (make(tmp_path, 3) / "inner" / "shard").write_bytes(b"shart")
    make(tmp_path, 4, sealed=False)
    assert newest_good_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert "checkpoint-4 is unfinished" in caplog.text
    assert "inner/shard is damaged" in caplog.text


def test_without_any_sealed_checkpoint_there_is_none(tmp_path):
    make(tmp_path, 4, sealed=False)
    assert newest_good_checkpoint(tmp_path) is None
    assert newest_good_checkpoint(tmp_path / "nowhere") is None


def test_nothing_but_damaged_checkpoints_is_an_error(tmp_path):
    (make(tmp_path, 3) / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used \(.*model.safetensors is missing"):
        newest_good_checkpoint(tmp_path)


def test_rotation_keeps_the_newest_sealed_and_clears_what_is_older(tmp_path):
    for step in (1, 2, 3):
        make(tmp_path, step)
    make(tmp_path, 4, sealed=False)
    make(tmp_path, 5)
    make(tmp_path, 6, sealed=False)
    rotate(tmp_path, 2)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-3", "checkpoint-5", "checkpoint-6"]


def test_rotation_spares_the_best_and_never_the_last_sealed_one(tmp_path):
    for step in (1, 2, 3):
        make(tmp_path, step)
    rotate(tmp_path, 0, also_keep=tmp_path / "checkpoint-1")
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-1", "checkpoint-3"]


def test_rotation_without_a_limit_only_clears_unsealed_ones(tmp_path):
    make(tmp_path, 1)
    make(tmp_path, 2, sealed=False)
    make(tmp_path, 3)
    rotate(tmp_path, None)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-1", "checkpoint-3"]


def save_and_fail(folder, error):
    with whole_checkpoint(folder):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise error


def test_whatever_fails_while_saving_leaves_no_folder(tmp_path):
    folder = tmp_path / "checkpoint-5"
    with pytest.raises(KeyboardInterrupt):
        save_and_fail(folder, KeyboardInterrupt())
    assert not folder.exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc] . PytorchStreamWriter failed writing file data/0"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_refusing_disk_is_one_storage_error_whichever_library_met_it(tmp_path, error):
    folder = tmp_path / "checkpoint-5"
    with pytest.raises(StorageError, match=r"could not write .*checkpoint-5") as raised:
        save_and_fail(folder, error)
    assert "\n" not in str(raised.value)
    assert not folder.exists()


def test_other_errors_while_saving_are_not_blamed_on_the_disk(tmp_path):
    with pytest.raises(RuntimeError, match="out of memory"):
        save_and_fail(tmp_path / "checkpoint-5", RuntimeError("out of memory"))
