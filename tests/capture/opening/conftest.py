"""Tiny checkpoints on disk, with a tokenizer that fits."""

import json
import shutil

import pytest

from stickymoe.capture.tiny import tiny_model
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.tokenizer_choice import as_transformers

VOCABULARY = 288


@pytest.fixture(scope="session")
def tokenizer():
    return as_transformers(train_byte_bpe(["the expert that stays, the expert that goes "] * 20, VOCABULARY))


@pytest.fixture(scope="session")
def original(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("mixtral")
    tiny_model("mixtral", vocab_size=VOCABULARY).save_pretrained(folder, max_shard_size="20KB")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def checkpoint(original, tmp_path):
    """A mixtral in several shards, to be damaged."""
    return shutil.copytree(original, tmp_path / "mixtral")


@pytest.fixture
def edit():
    def change(path, **entries):
        content = json.loads(path.read_text())
        content.update(entries)
        path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))

    return change
