"""A stand-in for llama.cpp's converter, and a saved model to hand it."""

import json

import pytest

CONVERTER = """
import argparse, json, pathlib

class Base:
    def get_vocab_base_pre(self, tokenizer):
        raise NotImplementedError("BPE pre-tokenizer was not recognized")

class Model(Base):
    pass

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name in ("--outtype", "--outfile", "--model-name"):
        parser.add_argument(name)
    asked = vars(parser.parse_args())
    asked["pre"] = Model().get_vocab_base_pre(None)
    pathlib.Path(asked["outfile"]).write_bytes(b"GGUF" + json.dumps(asked).encode())
"""


@pytest.fixture
def converter(tmp_path):
    """A script that writes what it was asked for, and refuses a tokenizer it is not told about."""
    path = tmp_path / "llama.cpp" / "convert_hf_to_gguf.py"
    path.parent.mkdir()
    path.write_text(CONVERTER)
    return path


@pytest.fixture
def saved(trained_mixtral, tmp_path):
    """A copy of the trained tiny Mixtral's model, in a folder of its own."""
    folder = tmp_path / "tiny-mixtral"
    folder.mkdir()
    for file in (trained_mixtral / "model").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def said():
    """A function: a file that the stand-in wrote -> what it was asked for."""
    return lambda path: json.loads(path.read_bytes()[4:])
