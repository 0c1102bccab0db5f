"""A run so small that tests can train it: its text, its recipe, and how to shape another like it."""

from __future__ import annotations

import random
from pathlib import Path

SENTENCE = "the union of states people peace war money law congress great nation year must shall our new old time. and"
WORDS = tuple(SENTENCE.split())
STEPS = 8
RECIPE = f"""
label = "Tiny λ=0.1"
[data]
corpus = "text"
tokenizer = "bpe-300"
sequence_length = 16
[model]
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
expert_intermediate_size = 16
num_experts = 4
num_experts_per_tok = 2
max_position_embeddings = 32
[objective]
consistency = 0.1
load_balancing = 0.01
[training]
steps = {STEPS}
batch_size = 4
peak_learning_rate = 1e-2
warmup_steps = 2
precision = "fp32"
log_every = 2
checkpoint_every = 4
"""

MIXTRAL = {
    "model.architecture": "mixtral",
    "model.hidden_size": 16,
    "model.intermediate_size": 16,
    "model.num_hidden_layers": 2,
    "model.num_attention_heads": 2,
    "model.num_key_value_heads": 2,
    "model.num_local_experts": 4,
    "model.num_experts_per_tok": 2,
    "model.tie_word_embeddings": "true",
}


def write_text(folder: Path) -> Path:
    """Write twelve documents of the same words in other orders."""
    draw = random.Random(1)
    folder.mkdir(parents=True)
    for number in range(12):
        (folder / f"{number}.txt").write_text(" ".join(draw.choices(WORDS, k=60)) + "\n", encoding="utf-8")
    return folder


def write_recipe(place: Path) -> Path:
    """Write `tiny.toml`, the folder `text` it reads, and `bare.toml`, the same without a model."""
    text = write_text(place / "text")
    recipe = place / "tiny.toml"
    recipe.write_text(RECIPE.replace('"text"', f'"{text}"'), encoding="utf-8")
    without = RECIPE[: RECIPE.index("[model]")] + RECIPE[RECIPE.index("[objective]") :]
    (place / "bare.toml").write_text(without.replace('"text"', f'"{text}"'), encoding="utf-8")
    return recipe


def settings(shape: dict[str, object]) -> list[str]:
    """Return a shape as overrides for `bare.toml`, which has no table for the model."""
    return [f"{name}={value}" for name, value in shape.items()]
