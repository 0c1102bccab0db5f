"""The token cache: what was written is what is read, damage is found and mended, a full disk leaves no ruin."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys

import numpy as np
import pytest

from stickymoe.core.errors import StorageError
from stickymoe.data import load_corpus, token_cache
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.token_cache import read_tokens, write_tokens
from stickymoe.data.tokenise import TokenRow


@pytest.fixture
def written(tmp_path):
    folder = tmp_path / "one"
    rows = {"train": TokenRow(np.arange(50, dtype=np.int32), np.array([20, 0, 30]))}
    return folder, write_tokens(folder, train_byte_bpe(["abab abab"], 259), rows)


def test_what_was_written_is_read_back(written):
    folder, cached = written
    read = read_tokens(folder, ["train"])
    assert read is not None
    assert read.checksums == cached.checksums
    assert read.tokenizer.to_str() == cached.tokenizer.to_str()
    np.testing.assert_array_equal(read.rows["train"].tokens, np.arange(50))
    np.testing.assert_array_equal(read.rows["train"].document_lengths, [20, 0, 30])


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-7])


def remove(path):
    path.unlink()


@pytest.mark.parametrize("harm", [flip_a_byte, truncate, remove])
@pytest.mark.parametrize("name", ["train.tokens.npy", "train.documents.npy", "tokenizer.json"])
def test_a_damaged_file_is_found_and_named(written, harm, name, caplog):
    folder, _ = written
    harm(folder / name)
    with caplog.at_level(logging.WARNING, logger="stickymoe.data"):
        assert read_tokens(folder, ["train"]) is None
    assert name in caplog.text
    assert "built again" in caplog.text


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1, "files": []}', '{"format": 1, "files": {}}', "\udc80"]
)
def test_a_manifest_that_is_no_manifest_is_damage(written, content, caplog):
    folder, _ = written
    (folder / "manifest.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert read_tokens(folder, ["train"]) is None
    assert "manifest.json" in caplog.text


def test_pickled_arrays_are_never_loaded(written, caplog):
    folder, _ = written
    path = folder / "train.tokens.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][path.name] = {"bytes": path.stat().st_size, "sha256": token_cache.sha256_of(path)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert read_tokens(folder, ["train"]) is None
    assert "cannot be read" in caplog.text


def test_without_a_manifest_nothing_is_there_and_nobody_is_warned(written, caplog):
    folder, _ = written
    (folder / "manifest.json").unlink()
    assert read_tokens(folder, ["train"]) is None
    assert caplog.text == ""


def test_a_full_disk_is_one_line_and_the_next_try_succeeds(letters, cache):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        with pytest.raises(StorageError, match=r"could not write .*tokenizer\.json: file too large; .*free some space"):
            load_corpus(str(letters))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert load_corpus(str(letters)).splits["train"].num_tokens > 0


def test_a_cache_that_cannot_be_a_folder_is_a_storage_error(letters, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"could not write the cache .*; set STICKYMOE_CACHE"):
        load_corpus(str(letters), cache_dir=tmp_path / "file")


def test_two_processes_that_prepare_at_once_do_not_harm_each_other(letters, cache, caplog):
    code = "import sys; from stickymoe.data import load_corpus; print(load_corpus(sys.argv[1]).fingerprint)"
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(letters)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    fingerprints = [run.communicate()[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert fingerprints == [load_corpus(str(letters)).fingerprint] * 2
    assert caplog.text == ""
    assert [path.name for path in cache.rglob("*.partial")] == []
