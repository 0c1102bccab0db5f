"""Choosing a tokenizer by name, folder or corpus."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from stickymoe.core.errors import DataError, SettingError
from stickymoe.data import load_corpus
from stickymoe.data.source import Document, TextSource
from stickymoe.data.tokenizer_choice import as_transformers, plan_tokenizer


def source(splits=("train",), tokenizer="bpe-300", missing=None):
    documents = {split: [Document("a", ("some text " * 50,))] for split in splits}
    return TextSource("x", documents, [], "rule", tokenizer, True, missing or {})


def test_auto_is_the_corpus_own_choice(cache):
    assert plan_tokenizer("auto", source(), None, cache).name == "bpe-300"
    assert plan_tokenizer("auto", source(tokenizer="gpt2"), None, cache).name == "gpt2"


def test_only_the_train_split_is_trained_on(cache):
    held_out = TextSource(
        "x",
        {"train": [Document("a", ("ab " * 50,))], "test": [Document("b", ("qzqz " * 500,))]},
        [],
        "rule",
        "bpe-300",
        True,
    )
    tokenizer = plan_tokenizer("auto", held_out, None, cache).build()
    assert tokenizer.encode("qzqz").tokens == ["q", "z", "q", "z"]
    assert tokenizer.encode("ab").tokens == ["ab"]


def test_training_without_a_train_split_names_the_file_looked_for(cache):
    with pytest.raises(
        DataError, match=r"x has none \(looked for there/wiki\.train\.raw\); .* choose the tokenizer gpt2"
    ):
        plan_tokenizer("bpe-4096", source(("test",), missing={"train": "there/wiki.train.raw"}), None, cache)


@pytest.mark.parametrize(("choice", "hint"), [("gpt-2", "'gpt2'"), ("bpe4096", "'bpe-4096'"), ("atuo", "'auto'")])
def test_an_unknown_tokenizer_names_the_nearest_known_one(choice, hint, cache):
    with pytest.raises(SettingError, match=f"tokenizer must be .*, got '{choice}'; did you mean {hint}"):
        plan_tokenizer(choice, source(), None, cache)


@pytest.mark.parametrize("choice", ["bpe-0", "bpe-256"])
def test_a_vocabulary_too_small_is_refused_before_any_work(choice, cache):
    with pytest.raises(SettingError, match="tokenizer vocabulary must be >= 257"):
        plan_tokenizer(choice, source(), None, cache)


def test_a_folder_with_the_gpt2_files_is_a_tokenizer(letters, shared_data):
    corpus = load_corpus(str(letters), tokenizer=str(shared_data / "gpt2"))
    assert corpus.vocab_size == 50_257
    assert corpus.provenance["tokenizer"] == {"name": "gpt2", "vocab_size": 50_257}
    assert corpus.tokenizer("Hello world").input_ids == [15496, 995]


def test_the_wrapped_tokenizer_ends_begins_and_pads_with_end_of_text(cache):
    bare = plan_tokenizer("auto", source(), None, cache).build()
    wrapped = as_transformers(bare)
    assert (wrapped.bos_token_id, wrapped.eos_token_id, wrapped.pad_token_id) == (0, 0, 0)
    assert wrapped(" some , text").input_ids == bare.encode(" some , text").ids
    assert wrapped.decode(wrapped(" some , text").input_ids) == " some , text"
    assert len(wrapped) == bare.get_vocab_size()


def own_tokenizer(end="</s>"):
    """A tokenizer as a model brings it: words for tokens, its own end of text, cut off after four tokens."""
    words = {word: number for number, word in enumerate(["[UNK]", "</s>", "alpha", "beta", "gamma"])}
    bare = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    bare.pre_tokenizer = Whitespace()
    bare.add_special_tokens(["</s>"])
    bare.enable_truncation(4)
    return PreTrainedTokenizerFast(tokenizer_object=bare, eos_token=end)


def test_a_models_own_tokenizer_cuts_the_whole_text_and_closes_documents_with_its_own_token(tmp_path, cache):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text("alpha beta gamma " * 3)
    own = own_tokenizer()
    corpus = load_corpus(str(tmp_path), tokenizer=own)
    again = load_corpus(str(tmp_path), tokenizer=own)
    tokens = corpus.splits["train"].tokens
    assert corpus.tokenizer is own
    assert corpus.vocab_size == len(own) == 5
    assert tokens[:10].tolist() == [2, 3, 4] * 3 + [1]
    assert again.splits["train"].tokens.tolist() == tokens.tolist()
    assert corpus.provenance["ends_documents_with_token"]
    assert own.backend_tokenizer.truncation is not None, "the tokenizer itself is left as it is"


def test_a_tokenizer_without_an_end_of_text_closes_no_document(tmp_path, cache):
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text("alpha beta")
    corpus = load_corpus(str(tmp_path), tokenizer=own_tokenizer(end=None))
    assert set(corpus.splits["train"].tokens.tolist()) == {2, 3}
    assert not corpus.provenance["ends_documents_with_token"]
    assert corpus.splits["train"].num_documents > 1
