"""Fine-tune a Hugging Face MoE with TRL's SFTTrainer and locality terms.

    pip install trl
    python examples/trl_sft.py --out tuned --learning-rate 3e-3  # a small random Mixtral on a few sentences
    python examples/trl_sft.py --model FOLDER_OR_HUB_NAME --data FILE.jsonl --packing --out tuned

FILE.jsonl holds what SFTTrainer takes: rows of `text`, of `messages`, or of `prompt` and `completion`.
"""

from __future__ import annotations

import argparse

from datasets import Dataset, load_dataset
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, MixtralConfig, MixtralForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from stickymoe.training import StickyTrainerMixin

SENTENCES = [
    "Experts that stay put need not be loaded again.",
    "A router that changes its mind at every token pays for it in loads.",
    "The cache is small, the disk is slow, the text goes on.",
    "Neighbouring tokens mostly speak of the same thing.",
]


class StickySFTTrainer(StickyTrainerMixin, SFTTrainer):
    """SFTTrainer with the terms of an objective on the model's routing."""


def small_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that knows the sentences."""
    pieces = ByteLevelBPETokenizer()
    pieces.train_from_iterator(SENTENCES, vocab_size=400, special_tokens=["<pad>", "<eos>"], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=pieces._tokenizer, pad_token="<pad>", eos_token="<eos>")


def small_mixtral(vocab_size: int) -> MixtralForCausalLM:
    """A Mixtral that a laptop trains in seconds."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_local_experts": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return MixtralForCausalLM(MixtralConfig(vocab_size=vocab_size, initializer_range=0.2, **sizes, **heads))


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder or hub name; a small random Mixtral if not given")
    parser.add_argument("--data", help="a JSONL file; a few sentences if not given")
    parser.add_argument("--out", required=True, help="where the model goes")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--packing", action="store_true", help="pack documents into full rows")
    parser.add_argument("--consistency", type=float, default=1.0, help="the term's coefficient")
    parser.add_argument("--cpu", action="store_true", help="leave the GPU alone")
    options = parser.parse_args()
    if options.model:
        tokenizer = AutoTokenizer.from_pretrained(options.model)
        model = AutoModelForCausalLM.from_pretrained(options.model)
    else:
        tokenizer = small_tokenizer()
        model = small_mixtral(len(tokenizer))
    data = load_dataset("json", data_files=options.data, split="train") if options.data else None
    settings = SFTConfig(
        output_dir=options.out,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        packing=options.packing,
        max_length=64 if data is None else 1024,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        use_cpu=options.cpu,
        # TRL switches the model's own load balancing on, whatever `output_router_logits` says, unless this is 0
        router_aux_loss_coef=0.0,
    )
    trainer = StickySFTTrainer(
        model,
        args=settings,
        train_dataset=data if data is not None else Dataset.from_dict({"text": SENTENCES * 8}),
        processing_class=tokenizer,
        objective={"consistency": options.consistency, "load_balancing": 0.01},
    )
    trainer.train()
    trainer.save_model(options.out)
    rows = [row for row in trainer.state.log_history if "consistency" in row]
    if rows:
        first, last = rows[0], rows[-1]
        print(f"consistency {first['consistency']:.4f} -> {last['consistency']:.4f}")
        print(f"switch rate {first['switch_rate']:.3f} -> {last['switch_rate']:.3f}")


if __name__ == "__main__":
    main()
