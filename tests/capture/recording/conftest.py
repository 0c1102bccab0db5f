"""Tiny models of five families, opened as a user would have them, and texts to read to them."""

import json

import pytest

from stickymoe.capture.opening import OpenedModel
from stickymoe.capture.tiny import tiny_model
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.tokenizer_choice import as_transformers
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM

VOCABULARY = 270
MAIN = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "stickymoe"]
WORDS = "Some experts stay while others go. The router decides for each token anew, and some texts keep it still."


@pytest.fixture(scope="session")
def tokenizer():
    return as_transformers(train_byte_bpe([WORDS] * 4, VOCABULARY))


@pytest.fixture(scope="session")
def opened(tokenizer, tmp_path_factory):
    """Return a family's tiny model."""
    import torch

    known = {}

    def model_of(family):
        if family not in known:
            torch.manual_seed(0)
            if family == "stickymoe":
                sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
                more = {"expert_intermediate_size": 8, "max_position_embeddings": 64, "initializer_range": 0.3}
                model = StickyMoEForCausalLM(StickyMoEConfig(**sizes, **more)).eval()
            else:
                more = {"vocab_size_per_layer_input": VOCABULARY} if family == "gemma4" else {}
                model = tiny_model(family, vocab_size=VOCABULARY, **more)
            model.generation_config.eos_token_id = None
            known[family] = OpenedModel(family, model, tokenizer, tmp_path_factory.mktemp(family))
        return known[family]

    return model_of


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(WORDS)
    return path


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.jsonl"
    lines = [{"text": WORDS[:40]}, {"content": WORDS[40:47]}, {"prompt": WORDS[20:]}]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path
