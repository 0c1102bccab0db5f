"""Add locality terms to a training loop of your own: two lines, any Hugging Face MoE.

    python examples/plug_into_your_loop.py                       # a small random Mixtral on made-up text
    python examples/plug_into_your_loop.py --model FOLDER_OR_HUB_NAME --steps 200

Prints how often neighbouring tokens change their top-1 expert, before and after.
"""

from __future__ import annotations

import argparse

import torch
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM, PreTrainedModel

from stickymoe.capture import capture_routing
from stickymoe.losses import diagnose
from stickymoe.training import StickyObjective


def small_mixtral() -> PreTrainedModel:
    """A Mixtral that a laptop trains in seconds."""
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_local_experts": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return MixtralForCausalLM(MixtralConfig(vocab_size=256, initializer_range=0.2, **sizes, **heads))


def made_up_batches(steps: int, micro_batches: int, vocab_size: int) -> list[list[dict[str, torch.Tensor]]]:
    """Padded batches of counting sequences, as a loader would give them: some steps of some micro-batches each."""
    random = torch.Generator().manual_seed(0)
    made = []
    for _ in range(steps * micro_batches):
        starts = torch.randint(vocab_size, (4, 1), generator=random)
        ids = (starts + torch.arange(24)) % vocab_size
        mask = (torch.arange(24) < torch.randint(8, 25, (4, 1), generator=random)).long()
        made.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return [made[begin : begin + micro_batches] for begin in range(0, len(made), micro_batches)]


@torch.no_grad()
def switch_rate(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> float:
    """Share of neighbouring tokens with another top-1 expert, over all layers."""
    model.eval()
    with capture_routing(model) as capture:
        model(**batch)
    model.train()
    return float(diagnose(capture.routing)["switch_rate"].mean())


def main() -> None:
    """Train, and say what became of the routing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder or hub name; a small random Mixtral if not given")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--consistency", type=float, default=5.0, help="the term's coefficient")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(options.model) if options.model else small_mixtral()
    model.train()
    steps = made_up_batches(options.steps, micro_batches=2, vocab_size=model.config.vocab_size)
    before = switch_rate(model, steps[0][0])

    sticky = StickyObjective(consistency=options.consistency, load_balancing=0.01)  # line one
    sticky.attach(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, batches in enumerate(steps, start=1):
        sticky.begin_step(batches)  # so that padding and accumulation change nothing; leave it out without either
        targets = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
        shown = dict.fromkeys(("loss", "consistency"), 0.0)
        for batch in batches:
            loss = model(**batch, num_items_in_batch=targets).loss + sticky.loss()  # line two
            loss.backward()
            shown["loss"] += float(loss.detach())
            shown["consistency"] += float(sticky.terms["consistency"])
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == len(steps):
            print(f"step {step}: " + ", ".join(f"{name} {value:.4f}" for name, value in shown.items()))

    print(f"switch rate {before:.3f} -> {switch_rate(model, steps[0][0]):.3f}")


if __name__ == "__main__":
    main()
