"""Runs one batch of sequences: the prompts in one pass, and, where asked, tokens that the model writes after them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from stickymoe.capture.recording.prompts import Prompt

_FEW_LOGITS: dict[str, Any] = {"logits_to_keep": 1, "return_logits": False}  # transformers' way, and our own


@dataclass(frozen=True)
class Writing:
    """How a model goes on from a prompt.

    Attributes:
        tokens: How many tokens are written and run through the model, at most; 0 for none.
        temperature: 0 always takes the likeliest token; else from 0.01 to 100.
        top_p: Probability mass sampled from, in (0, 1].
    """

    tokens: int = 0
    temperature: float = 0.8
    top_p: float = 0.95


@dataclass(frozen=True, eq=False)
class Ran:
    """What a batch ran: (batch, columns) tokens that were fed, and which of them count."""

    token_ids: Tensor
    real: Tensor


def padded(prompts: Sequence[Prompt], fill: int, device: torch.device, *, left: bool) -> tuple[Tensor, Tensor]:
    """Return the prompts side by side and which places hold a token."""
    width = max(len(prompt.token_ids) for prompt in prompts)
    ids = torch.full((len(prompts), width), fill, dtype=torch.int64)
    real = torch.zeros(len(prompts), width, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        length = len(prompt.token_ids)
        place = slice(width - length, width) if left else slice(0, length)
        ids[row, place] = torch.from_numpy(prompt.token_ids.astype("int64"))
        real[row, place] = 1
    return ids.to(device), real.to(device)


@torch.no_grad()
def read_batch(model: PreTrainedModel, prompts: Sequence[Prompt], fill: int) -> Ran:
    """Run the prompts in one pass, padded on the right, and compute no logits that nobody asked for."""
    ids, real = padded(prompts, fill, model.device, left=False)
    known = inspect.signature(model.forward).parameters
    few = {name: value for name, value in _FEW_LOGITS.items() if name in known}
    model(input_ids=ids, attention_mask=real, use_cache=False, **few)
    return Ran(ids, real.bool())


@torch.no_grad()
def write_batch(model: PreTrainedModel, prompts: Sequence[Prompt], fill: int, writing: Writing) -> Ran:
    """Run the prompts, padded on the left, and let the model write on with its cache.

    A text ends before the token that ends it: whether that would be run depends on the other rows of the batch.
    """
    ids, real = padded(prompts, fill, model.device, left=True)
    ends = _ends(model)
    sampling: dict[str, Any] = {"do_sample": False}
    if writing.temperature > 0:
        sampling = {"do_sample": True, "temperature": writing.temperature, "top_p": writing.top_p, "top_k": 0}
    settings = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=writing.tokens + 1,  # the last one is written, not run
        num_beams=1,
        use_cache=True,
        pad_token_id=fill,
        eos_token_id=ends or None,
        disable_compile=True,
        **sampling,
    )
    generating: Any = model
    written: Tensor = generating.generate(ids, attention_mask=real, generation_config=settings)
    fed = written[:, :-1]
    new = fed[:, ids.shape[1] :]
    ended = torch.isin(new, torch.tensor(ends, device=new.device, dtype=new.dtype)).cumsum(dim=1) > 0
    return Ran(fed, torch.cat([real.bool(), ~ended], dim=1))


def _ends(model: PreTrainedModel) -> list[int]:
    """Return the tokens that end a text, by what the checkpoint says of generation."""
    told: Any = getattr(model, "generation_config", None)
    ends = getattr(told, "eos_token_id", None)
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
