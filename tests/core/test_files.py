"""Whole-file writes: whatever goes wrong, the old file stands and no litter stays."""

import errno
import hashlib
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from stickymoe.core import files
from stickymoe.core.errors import DataError, SettingError, StickyMoEError, StorageError
from stickymoe.core.files import read_json, sha256_of, storage_errors, whole_file, whole_folder, write_json


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    return path


def write_half(path, error):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise error


def test_a_finished_write_takes_the_old_files_place_and_leaves_nothing_else(old):
    with whole_file(old) as temporary:
        temporary.write_text("new")
        assert old.read_text() == "old"
    assert old.read_text() == "new"
    assert names_in(old.parent) == ["metrics.json"]


def test_missing_folders_are_made(tmp_path):
    write_json(tmp_path / "runs" / "demo" / "metrics.json", {})
    assert (tmp_path / "runs" / "demo" / "metrics.json").read_text() == "{}\n"


def test_a_failure_halfway_leaves_the_old_file_and_raises_what_happened(old):
    with pytest.raises(RuntimeError, match="halfway"):
        write_half(old, RuntimeError("halfway"))
    assert old.read_text() == "old"
    assert names_in(old.parent) == ["metrics.json"]


def test_ctrl_c_halfway_leaves_the_old_file(old):
    with pytest.raises(KeyboardInterrupt):
        write_half(old, KeyboardInterrupt())
    assert old.read_text() == "old"
    assert names_in(old.parent) == ["metrics.json"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Error while serializing: I/O error: No space left on device (os error 28)", "no space left on device"),
        ("[inline_container.cc] . PytorchStreamWriter failed writing file", "the disk is full or refuses the write"),
    ],
)
def test_a_refusal_told_by_another_library_is_the_same_line(tmp_path, message, reason):
    expected = f"could not write .*: {reason}; all else is safe, delete something"
    with pytest.raises(StorageError, match=expected), storage_errors(tmp_path, "all else is safe", "delete something"):
        raise RuntimeError(message)


@pytest.mark.parametrize("error", [RuntimeError("os error 28 of another kind"), OSError(errno.ENOENT, "gone")])
def test_what_is_no_refusal_passes_through(tmp_path, error):
    with pytest.raises(type(error)) as caught, storage_errors(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
def test_a_disk_that_refuses_is_one_line_and_costs_nothing(old, code):
    with pytest.raises(StorageError) as caught:
        write_half(old, OSError(code, os.strerror(code)))
    assert str(caught.value) == (
        f"could not write {old}: {os.strerror(code).lower()}; "
        "nothing that was there before is lost, free some space and retry"
    )
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, StickyMoEError)
    assert old.read_text() == "old"
    assert names_in(old.parent) == ["metrics.json"]


def test_a_disk_that_fills_up_only_at_the_flush_is_noticed(old, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match="no space left on device"):
        write_json(old, {"perplexity": 1.0})
    assert old.read_text() == "old"
    assert names_in(old.parent) == ["metrics.json"]


def test_bytes_reach_the_disk_before_the_name_changes(old, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: events.append("flush") or fsync(descriptor))
    monkeypatch.setattr(Path, "replace", lambda *args: events.append("rename") or replace(*args))
    write_json(old, 1)
    assert events == ["flush", "rename"]


def test_other_errors_of_the_system_keep_their_type(old):
    with pytest.raises(PermissionError):
        write_half(old, PermissionError(errno.EACCES, "Permission denied"))
    assert old.read_text() == "old"


def write_and_die(path):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_between_write_and_rename_leaves_the_old_file_and_the_next_write_works(old):
    process = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(old,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert old.read_text() == "old"
    write_json(old, "new")
    assert json.loads(old.read_text()) == "new"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_json_refuses_numbers_that_json_does_not_know(old, number):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(old, {"perplexity": number})
    assert old.read_text() == "old"


def test_json_comes_back_as_it_went_in(tmp_path):
    content = {"metric": [1, 2.5, None, "é"], "nested": {"ok": True}}
    write_json(tmp_path / "x.json", content)
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == content


def test_the_checksum_is_that_of_the_bytes(tmp_path):
    content = bytes(range(256)) * 5000  # more than one block
    (tmp_path / "x.bin").write_bytes(content)
    assert sha256_of(tmp_path / "x.bin") == hashlib.sha256(content).hexdigest()


def test_an_object_is_read_as_it_was_written(tmp_path):
    write_json(tmp_path / "a.json", {"perplexity": 1.5, "über": [None, "ß"]})
    assert read_json(tmp_path / "a.json", DataError, "evaluate again") == {"perplexity": 1.5, "über": [None, "ß"]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"perplexity": 1.', "cannot be read"),
        (b"\xff\xfe{}", "codec can't decode"),
        (b"[" * 100_000, "cannot be read"),
        (b"[1, 2]", "must hold one JSON object, got list"),
        (b" " * 101, "must have at most 100 bytes, found more"),
    ],
)
def test_what_is_no_object_is_told_in_one_line(tmp_path, content, reason):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    bound = 100 if len(content) == 101 else 2**20
    with pytest.raises(DataError) as error:
        read_json(path, DataError, "evaluate again", most_bytes=bound)
    told = str(error.value)
    assert told.startswith(str(path))
    assert reason in told
    assert told.endswith("; evaluate again")
    assert "\n" not in told


def test_too_large_is_told_alike_where_the_error_is_a_value_error_too(tmp_path):
    (tmp_path / "a.json").write_bytes(b" " * 101)
    with pytest.raises(SettingError) as error:
        read_json(tmp_path / "a.json", SettingError, "name another", most_bytes=100)
    assert str(error.value) == f"{tmp_path / 'a.json'} must have at most 100 bytes, found more; name another"


def stopped_halfway(folder):
    with whole_folder(folder) as partial:
        partial.mkdir()
        raise KeyboardInterrupt


def test_a_folder_takes_its_place_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "model"
    for name in ("one", "two"):
        with whole_folder(folder) as partial:
            partial.mkdir()
            (partial / name).write_text(name)
            assert not (folder / name).exists()
        assert names_in(folder) == [name]
    with pytest.raises(KeyboardInterrupt):
        stopped_halfway(folder)
    assert names_in(folder) == ["two"]
    assert names_in(tmp_path) == ["model"]


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "a.json").write_bytes(b"{}" + b" " * 98)
    assert read_json(tmp_path / "a.json", DataError, "evaluate again", most_bytes=100) == {}


def test_a_missing_file_and_a_folder_are_told_with_the_systems_reason(tmp_path):
    with pytest.raises(DataError, match=r"a\.json cannot be read \(no such file or directory\); evaluate again$"):
        read_json(tmp_path / "a.json", DataError, "evaluate again")
    with pytest.raises(DataError, match=r"cannot be read \(is a directory\)"):
        read_json(tmp_path, DataError, "evaluate again")
