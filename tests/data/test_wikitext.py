"""WikiText-2: official files only, raw and v1 apart, rows and articles as published."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from stickymoe.core.errors import DataError
from stickymoe.data import load_corpus
from stickymoe.data.wikitext import OFFICIAL_FILES, documents_of, looks_like_wikitext, rows_of, wikitext


def test_rows_are_lines_with_their_newline_and_blank_lines_are_empty():
    assert rows_of(" \n = A = \n \n x\u2028y \n\n") == ["", " = A = \n", "", " x\u2028y \n", ""]
    assert rows_of("no newline at the end") == ["no newline at the end"]


def test_articles_start_at_top_headings_between_blank_rows_only():
    rows = ["", " = A = \n", "", " = = B = = \n", "", " x \n", " = 1 y = \n", "", "", " = C = D = \n", "", " z \n"]
    documents = documents_of(rows)
    assert [document.name for document in documents] == ["A", "C = D"]
    assert [document.rows for document in documents] == [tuple(rows[:9]), tuple(rows[9:])]


def test_rows_without_a_heading_are_one_document():
    assert [document.rows for document in documents_of([" a \n", ""])] == [(" a \n", "")]


def test_the_table_of_official_files_is_that_of_the_files_at_hand(shared_data):
    seen = 0
    for name, official in OFFICIAL_FILES.items():
        path = shared_data / official.corpus / name
        if path.exists():
            content = path.read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (official.num_bytes, official.sha256)
            seen += 1
    assert seen == 5
    assert OFFICIAL_FILES["wiki.train.raw"].sha256 in (shared_data / "README.md").read_text()


def test_raw_validation_and_test_have_the_published_token_and_article_counts(shared_data):
    corpus = load_corpus(str(shared_data / "wikitext-2-raw"))
    counts = {name: (split.num_tokens, split.num_documents) for name, split in corpus.splits.items()}
    assert counts == {"validation": (247_289, 60), "test": (283_287, 60)}
    assert corpus.name == "wikitext-2-raw"
    assert corpus.vocab_size == 50_257
    with pytest.raises(DataError, match=r"got 'train'; looked for .*wikitext-2-raw/wiki\.train\.raw"):
        corpus.splits["train"]


@pytest.mark.slow
def test_v1_has_the_published_token_and_article_counts(shared_data):
    corpus = load_corpus(str(shared_data / "wikitext-2-v1"))
    counts = {name: (split.num_tokens, split.num_documents) for name, split in corpus.splits.items()}
    assert counts == {"train": (2_422_480, 600), "validation": (256_061, 60), "test": (292_943, 60)}


def test_no_token_stands_between_articles(shared_data):
    corpus = load_corpus(str(shared_data / "wikitext-2-raw" / "wiki.valid.raw"))
    assert list(corpus.splits) == ["validation"]
    split = corpus.splits["validation"]
    assert corpus.tokenizer.eos_token_id not in split.tokens
    second = corpus.tokenizer.decode(split.tokens[split.document_ids == 1])
    assert second.startswith(" = Frank Headlam = \n")


def test_raw_and_v1_files_in_one_folder_are_refused(tmp_path):
    for name in ("wiki.valid.raw", "wiki.train.tokens"):
        (tmp_path / name).write_text("text")
    with pytest.raises(
        DataError, match=r"holds both \(wiki\.valid\.raw, wiki\.train\.tokens\).*keep them in two folders"
    ):
        load_corpus(str(tmp_path))


def test_a_modified_file_is_refused_with_both_checksums(tmp_path):
    (tmp_path / "wiki.test.raw").write_text("changed")
    actual = hashlib.sha256(b"changed").hexdigest()
    with pytest.raises(DataError) as caught:
        wikitext(tmp_path)
    message = str(caught.value)
    assert "wiki.test.raw" in message
    assert actual in message
    assert OFFICIAL_FILES["wiki.test.raw"].sha256 in message
    assert "\n" not in message


def test_a_v1_file_under_a_raw_name_is_found_out(tmp_path, shared_data):
    shutil.copyfile(shared_data / "wikitext-2-v1" / "wiki.test.tokens", tmp_path / "wiki.test.raw")
    with pytest.raises(DataError, match=r"its content is wiki\.test\.tokens"):
        wikitext(tmp_path)


@pytest.mark.parametrize(
    ("held", "message"), [("wiki.test.tokens", "those of wikitext-2-v1"), ("other", "none of them")]
)
def test_a_named_folder_must_hold_the_corpus_of_its_name(tmp_path, monkeypatch, held, message):
    (tmp_path / "wikitext-2-raw").mkdir()
    (tmp_path / "wikitext-2-raw" / held).touch()
    monkeypatch.setenv("STICKYMOE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"must hold the files of wikitext-2-raw .*it holds {message}"):
        load_corpus("wikitext-2-raw")


def test_a_named_corpus_is_found_in_the_data_folder(shared_data, monkeypatch):
    monkeypatch.setenv("STICKYMOE_DATA", str(shared_data))
    assert load_corpus("wikitext-2-raw").splits["test"].num_tokens == 283_287


def test_other_folders_do_not_look_like_wikitext(letters):
    assert not looks_like_wikitext(letters)
    assert not looks_like_wikitext(letters / "0.txt")
