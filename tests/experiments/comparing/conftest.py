"""Two tiny mixtrals that share a tokenizer, saved as a user would have them, and a text of several documents."""

import json

import pytest

WORDS = (
    "Some experts stay while others go. ",
    "The router decides for each token anew, and some texts keep it still. ",
    "What is loaded once is used again before it leaves. ",
    "A cache of four holds what four tokens want. ",
)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders `a` and `b`: of one shape, other weights."""
    from stickymoe.capture.tiny import tiny_model
    from stickymoe.data.byte_bpe import train_byte_bpe
    from stickymoe.data.tokenizer_choice import as_transformers

    place = tmp_path_factory.mktemp("models")
    tokenizer = as_transformers(train_byte_bpe(WORDS, 270))
    for seed, name in enumerate("ab"):
        tiny_model("mixtral", seed, vocab_size=270, num_local_experts=16, num_experts=16).save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    return place


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "records.jsonl"
    path.write_text("\n".join(json.dumps({"text": 3 * text}) for text in WORDS))
    return path


@pytest.fixture(scope="session")
def pair(models, records):
    """Both after reading the same text, three sequences at a time."""
    from stickymoe.capture.recording import find_texts
    from stickymoe.experiments.comparing.subject import read_models

    names = (str(models / "a"), str(models / "b"))
    return read_models(names, find_texts(records), chunk=24, max_tokens=None, batch_size=3)


@pytest.fixture(scope="session")
def found(pair):
    from stickymoe.experiments.comparing.comparison import compare

    return compare(pair)
