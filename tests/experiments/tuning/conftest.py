"""A tiny random model with a tokenizer of its own, a text to tune it on, and how to tune it in a few steps."""

import json
import random
from types import SimpleNamespace

import pytest
import torch

WORDS = ["the", "of", "and", "a", "one", "two", "three", "model", "text", "expert", "router", "stays", "goes"]


def write_text(path, rows=60, seed=0):
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 30))) for _ in range(rows)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def small_tokenizer():
    from stickymoe.data.byte_bpe import train_byte_bpe
    from stickymoe.data.tokenizer_choice import as_transformers

    return as_transformers(train_byte_bpe([" ".join(WORDS)] * 4, 280))


def small_model(family="mixtral", seed=0, **sizes):
    from stickymoe.capture.tiny import tiny_model
    from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM

    if family != "stickymoe":
        return tiny_model(family, seed, **({"vocab_size": 280, "unpadded_vocab_size": 280} | sizes))
    torch.manual_seed(seed)
    own = {"vocab_size": 280, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    own |= {"expert_intermediate_size": 8, "max_position_embeddings": 64, "initializer_range": 0.3}
    return StickyMoEForCausalLM(StickyMoEConfig(**(own | sizes)))


def open_small(folder, family="mixtral", **sizes):
    from stickymoe.capture.opening import OpenedModel

    model, tokenizer = small_model(family, **sizes), small_tokenizer()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return OpenedModel(str(folder), model, tokenizer, folder)


def small_settings(objective="remoe", **changes):
    from stickymoe.experiments.tuning.objectives import choose_objective
    from stickymoe.experiments.tuning.settings import TuneSettings

    chosen = choose_objective(objective)
    settings = {
        "objective": objective,
        "coefficients": dict(chosen.coefficients),
        "learning_rate": 1e-2,
        "tokens": 6 * 2 * 16,
        "sequence_length": 16,
        "batch_size": 1,
        "accumulation": 2,
        "evaluation_tokens": 150,
        "checkpoint_every": 2,
    }
    return TuneSettings(**(settings | changes))


@pytest.fixture
def small(tmp_path):
    return SimpleNamespace(
        model=small_model,
        tokenizer=small_tokenizer,
        settings=small_settings,
        text=write_text(tmp_path / "text.jsonl"),
        open=lambda family="mixtral", **sizes: open_small(tmp_path / "source", family, **sizes),
    )
