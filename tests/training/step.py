"""One optimiser step of a tiny model of any family, by a Trainer, and the same step row by row in slow loops."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from stickymoe.capture import capture_routing
from stickymoe.capture.tiny import tiny_model
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.training import StickyTrainerMixin

FAMILIES = ["stickymoe", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss"]
OBJECTIVE = {"consistency": 0.7, "router_z": 0.2}
PAD = 0


class Mixed(StickyTrainerMixin, Trainer):
    """transformers' own Trainer with the terms."""


def build(family: str, **overrides: object) -> torch.nn.Module:
    if family != "stickymoe":
        return tiny_model(family, **overrides).train()
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = StickyMoEConfig(**sizes, expert_intermediate_size=8, max_position_embeddings=64, initializer_range=0.3)
    return StickyMoEForCausalLM(config).train()


def ragged_rows(lengths: tuple[int, ...] = (8, 3, 5, 6)) -> list[dict[str, torch.Tensor]]:
    """Rows of unlike length; the first label or two of each is masked, as a prompt's are."""
    random = torch.Generator().manual_seed(2)
    rows = []
    for length in lengths:
        ids = torch.randint(3, 64, (length,), generator=random)
        labels = ids.masked_fill(torch.arange(length) < 1 + length % 2, -100)
        rows.append({"input_ids": ids, "labels": labels})
    return rows


def padded(rows: list[dict[str, torch.Tensor]], side: str = "right", width: int = 0) -> dict[str, torch.Tensor]:
    longest = max(width, *(len(row["input_ids"]) for row in rows))
    batch: dict[str, list[torch.Tensor]] = {"input_ids": [], "labels": [], "attention_mask": []}
    for row in rows:
        short = longest - len(row["input_ids"])
        gap = (0, short) if side == "right" else (short, 0)
        values = {**row, "attention_mask": torch.ones_like(row["input_ids"])}
        for name, filler in (("input_ids", PAD), ("labels", -100), ("attention_mask", 0)):
            batch[name].append(torch.nn.functional.pad(values[name], gap, value=filler))
    return {name: torch.stack(values) for name, values in batch.items()}


def packed(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """All rows behind each other in one, told apart by positions."""
    labels = [torch.cat([torch.tensor([-100]), row["labels"][1:]]) for row in rows]
    return {
        "input_ids": torch.cat([row["input_ids"] for row in rows])[None],
        "labels": torch.cat(labels)[None],
        "position_ids": torch.cat([torch.arange(len(row["input_ids"])) for row in rows])[None],
    }


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None and bool(weight.grad.any())
    }


def row_by_row(model: torch.nn.Module, rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Gradients of the step: every row by itself without padding, every target, pair and token by itself."""
    model.zero_grad()
    losses, pairs, tokens = [], [], []
    for row in rows:
        with capture_routing(model) as capture:
            logits = model(input_ids=row["input_ids"][None], use_cache=False, **_all_logits(model)).logits[0]
        for place in range(1, len(row["labels"])):
            if row["labels"][place] != -100:
                losses.append(-logits[place - 1].float().log_softmax(-1)[row["labels"][place]])
        routing = capture.routing
        for place in range(len(row["input_ids"])):
            tokens.append(sum(layer[0, place].float().logsumexp(-1).square() for layer in routing.router_logits))
            if place:
                pairs.append(sum((g[0, place] - g[0, place - 1]).square().sum() for g in routing.gate_probs))
    terms = {"consistency": sum(pairs) / len(pairs), "router_z": sum(tokens) / len(tokens)}
    weighted = sum(OBJECTIVE[name] * value / routing.num_layers for name, value in terms.items())
    (sum(losses) / len(losses) + weighted).backward()
    return gradients(model)


def _all_logits(model: torch.nn.Module) -> dict[str, bool]:
    return {"return_logits": True} if isinstance(model, StickyMoEForCausalLM) else {}


class KeepGradients(TrainerCallback):
    """Keeps the gradients that the optimiser is given."""

    def __init__(self) -> None:
        self.found: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.found.append({name.removeprefix("module."): grad for name, grad in gradients(model).items()})


def trainer(model, rows, folder, size, accumulate, *, kind=Mixed, objective=OBJECTIVE, collator=padded, **settings):
    """Return a Trainer for one step and the callback that keeps its gradients."""
    chosen = {
        "max_steps": 1,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulate,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
    }
    given = {} if objective is None else {"objective": objective}
    if "model_init" in settings:
        given["model_init"] = settings.pop("model_init")
    keep = KeepGradients()
    arguments = TrainingArguments(output_dir=str(folder), **(chosen | settings))
    built = kind(model, arguments, collator, train_dataset=rows, eval_dataset=rows, callbacks=[keep], **given)
    return built, keep


def rank(environment: dict[str, str], folder: str) -> None:
    """Take one step of every family on this rank's half of the rows, and of Mixtral with its own load balancing."""
    import os

    os.environ.update(environment)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with (Path(folder) / f"err{environment['RANK']}").open("w") as sys.stderr:
        rows = ragged_rows()
        found = {}
        for family in FAMILIES:
            made, keep = trainer(build(family), rows, folder, 1, 2, ddp_backend="gloo")
            made.train()
            found[family] = keep.found[0]
        own = build("mixtral", output_router_logits=True, router_aux_loss_coef=3.0)
        made, keep = trainer(own, ragged_rows((6, 6, 6, 6)), folder, 1, 2, ddp_backend="gloo")
        made.train()
        found["own aux"] = keep.found[0]
        if made.is_world_process_zero():
            torch.save(found, Path(folder) / "gradients.pt")
    sys.stderr = sys.__stderr__


if __name__ == "step_child":  # how a test's processes run this file
    rank(*CHILD)  # noqa: F821 - given by runpy
