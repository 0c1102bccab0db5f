"""Text that a trained run writes on from a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from stickymoe.core.errors import SettingError
from stickymoe.experiments.run_model import load_model, load_tokenizer, positions_of

COLDEST, HOTTEST = 0.01, 100.0  # beyond these float32 softmax is 0/1 or flat


def generate_text(
    run: Path, prompt: str, max_new_tokens: int = 100, *, temperature: float = 0.8, top_p: float = 0.95, seed: int = 0
) -> str:
    """Return `prompt` and what the run's model writes after it.

    Args:
        run: A run folder, or a folder with a saved model and tokenizer.
        prompt: Text to go on from, at least one token.
        max_new_tokens: At least 1; prompt and continuation together must fit the model's positions.
        temperature: 0 is greedy, else in [0.01, 100].
        top_p: Probability mass sampled from, in (0, 1].
        seed: Seed of the sampling, in [0, 2^32).

    Raises:
        SettingError: A setting breaks its rule, or the text would be longer than the model's positions.
        CheckpointError: There is no model.
    """
    _check(prompt, max_new_tokens, temperature, top_p, seed)
    model, tokenizer = load_model(run), load_tokenizer(run)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    _require_room(ids.shape[1], max_new_tokens, positions_of(model.config))
    set_seed(seed)
    sampling: dict[str, Any] = {"do_sample": False}
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": 0}
    end = tokenizer.eos_token_id
    generating: Any = model
    written = generating.generate(
        ids.to(model.device),
        attention_mask=torch.ones_like(ids).to(model.device),
        max_new_tokens=max_new_tokens,
        pad_token_id=0 if end is None else end,
        eos_token_id=end,
        **sampling,
    )
    return prompt + str(tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True))


def _check(prompt: str, max_new_tokens: int, temperature: float, top_p: float, seed: int) -> None:
    if not prompt:
        raise SettingError.broken("--prompt", "at least one token long", prompt, "give it a first word")
    if not 0 < top_p <= 1:
        raise SettingError.broken("--top-p", "in (0, 1]", top_p)
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise SettingError.broken("--temperature", f"0 (greedy) or in [{COLDEST}, {HOTTEST:g}]", temperature)
    if max_new_tokens < 1:
        raise SettingError.broken("--max-new-tokens", ">= 1", max_new_tokens)
    if not 0 <= seed < 2**32:
        raise SettingError.broken("--seed", "in [0, 2^32)", seed)


def _require_room(prompt_tokens: int, max_new_tokens: int, positions: int | None) -> None:
    if positions is None:
        return
    if prompt_tokens >= positions:
        rule = f"shorter than the model's {positions} positions"
        raise SettingError.broken("--prompt", rule, f"{prompt_tokens} tokens", "shorten it")
    if prompt_tokens + max_new_tokens > positions:
        rule = f"<= {positions - prompt_tokens}, what {prompt_tokens} tokens of prompt leave of {positions} positions"
        raise SettingError.broken("--max-new-tokens", rule, max_new_tokens, "lower it or shorten the prompt")
