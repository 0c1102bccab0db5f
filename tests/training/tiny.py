"""A tiny model, data and trainer for the tests, and what a training process of its own does with them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from transformers import TrainerCallback

from stickymoe.data import TokenChunks, TokenSplit
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.training import Interrupted, StickyArguments, StickyTrainer

SEQ_LEN = 8
VOCABULARY = 23


def model(seed: int = 0, **overrides: object) -> StickyMoEForCausalLM:
    torch.manual_seed(seed)
    sizes: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "expert_intermediate_size": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": SEQ_LEN,
        "initializer_range": 0.5,
    }
    return StickyMoEForCausalLM(StickyMoEConfig(**(sizes | overrides)))


def split(tokens: int = 203, documents: int = 5) -> TokenSplit:
    random = np.random.default_rng(1)
    borders = np.sort(random.choice(np.arange(1, tokens), documents - 1, replace=False))
    ids = random.integers(0, VOCABULARY, tokens).astype(np.int32)
    return TokenSplit(ids, np.searchsorted(borders, np.arange(tokens), side="right").astype(np.int32))


def chunks(tokens: int = 203, seq_len: int = SEQ_LEN, **kwargs: bool) -> TokenChunks:
    return TokenChunks(split(tokens), seq_len, **kwargs)


def arguments(output_dir: Path | str, **overrides: object) -> StickyArguments:
    settings: dict[str, object] = {
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "logging_steps": 2,
        "save_steps": 2,
        "seed": 3,
        "use_cpu": True,
        "objective": {"consistency": 0.5, "load_balancing": 0.1},
    }
    return StickyArguments(output_dir=str(output_dir), **(settings | overrides))


class KeepGradients(TrainerCallback):
    """Copies every gradient before each optimiser step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        named = model.named_parameters()
        self.steps.append({name.removeprefix("module."): weight.grad.clone() for name, weight in named})


class LimitFileSize(TrainerCallback):
    """From `step` on no file may grow beyond `limit` bytes, which the writers see as a disk that refuses."""

    def __init__(self, step: int, limit: int) -> None:
        self.step, self.limit = step, limit

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))


class SlowStep(TrainerCallback):
    """Prints a line a step and waits, so that another process can send a signal in time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_step_end(self, args, state, control, **_):
        import time

        print("step", flush=True)
        time.sleep(self.seconds)


def main(settings: dict) -> int:
    """Train as told; print the error's kind and message if there is one.

    Keys of its own: resume, dropout, ragged (uneven rows), gradients (file to write them to), seconds_a_step,
    limit_file_size ([step, bytes]).
    """
    torch.set_num_threads(1)
    settings = dict(settings)
    own = {key: settings.pop(key, None) for key in ("resume", "dropout", "ragged", "gradients", "limit_file_size")}
    slow = SlowStep(settings.pop("seconds_a_step", 0.0))
    data = ragged_rows() if own["ragged"] else chunks()
    try:
        trainer = StickyTrainer(model(dropout=own["dropout"] or 0.0), arguments(**settings), data)
        keep = KeepGradients()
        trainer.add_callback(keep)
        trainer.add_callback(slow)
        if own["limit_file_size"]:
            trainer.add_callback(LimitFileSize(*own["limit_file_size"]))
        trainer.train(resume_from_checkpoint=own["resume"])
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 130 if isinstance(error, Interrupted) else 2
    if own["gradients"] and trainer.is_world_process_zero():
        torch.save(keep.steps, own["gradients"])
    return 0


def ragged_rows(rows: int = 16) -> list[dict[str, torch.Tensor]]:
    """Rows of 2 to 8 tokens, some with a document border."""
    random = torch.Generator().manual_seed(5)
    made = []
    for row in range(rows):
        length = 2 + (row * 5) % 7
        ids = torch.randint(0, VOCABULARY, (length + 1,), generator=random)
        documents = (torch.arange(length) >= length // 2).long() * (row % 2)
        made.append({"input_ids": ids[:-1], "shift_labels": ids[1:], "document_ids": documents})
    return made


def child(settings: dict, environment: dict, folder: str) -> None:
    """Run `main` with its output in files of `folder`, and end the process with its code."""
    import os

    os.environ.update(environment)
    warnings.simplefilter("ignore")
    with (Path(folder) / "out").open("w") as sys.stdout, (Path(folder) / "err").open("w") as sys.stderr:
        code = main(settings)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    sys.exit(code)


if __name__ == "tiny_child":  # how conftest's processes run this file
    child(*CHILD)  # noqa: F821 - given by runpy
