"""Tune the routers of a Mixture-of-Experts model for locality, and see what it gives and costs.

A tiny random Mixtral is made in place, so this runs anywhere in seconds; name a folder with a model of yours, and a
text, to do the same to it:

    python examples/tune_router.py [MODEL [TEXT]]
"""

import sys
import tempfile
from pathlib import Path

from rich.console import Console
from transformers import MixtralConfig, MixtralForCausalLM, set_seed

from stickymoe.capture.opening import open_model
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.samples import load_samples
from stickymoe.data.tokenizer_choice import as_transformers
from stickymoe.experiments.tuning.objectives import choose_objective
from stickymoe.experiments.tuning.settings import TuneSettings
from stickymoe.experiments.tuning.table import tuning_table
from stickymoe.experiments.tuning.tune import tune


def tiny_model(folder: Path) -> Path:
    """Save a random Mixtral of eight experts with a byte-level tokenizer."""
    set_seed(0)
    tokenizer = as_transformers(train_byte_bpe(["experts that stay are experts that need no loading"] * 4, 300))
    config = MixtralConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=8,
        max_position_embeddings=128,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    MixtralForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_text(path: Path) -> Path:
    """Write a few hundred lines of text."""
    lines = [f"Token {n} goes to expert {n % 7}, and its neighbour to expert {(n + 1) % 7}.\n" for n in range(600)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def main(work: Path) -> None:
    """Tune, print the table and the proof."""
    model, text = (*sys.argv[1:3], None, None)[:2]
    opened = open_model(model or tiny_model(work / "model"), for_training=True, dtype="auto")
    objective = choose_objective("remoe")
    settings = TuneSettings(
        objective=objective.name,
        coefficients=dict(objective.coefficients),
        learning_rate=objective.learning_rate if model else 1e-2,  # a random router needs a push
        tokens=2500,
        sequence_length=64,
        batch_size=2,
        accumulation=2,
        evaluation_tokens=1000,
    )
    result = tune(opened, load_samples(text or tiny_text(work / "text.txt")), work / "tuned", settings, say=print)
    Console().print(tuning_table(result.arms))
    print(result.proof.worded())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
