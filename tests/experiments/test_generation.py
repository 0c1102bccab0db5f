"""Text from a run: the same for the same seed, greedy at temperature 0, never beyond the model's positions."""

import pytest
import torch

from stickymoe.core.errors import SettingError
from stickymoe.experiments.generation import generate_text
from stickymoe.experiments.run_model import load_model, load_tokenizer

PROMPT = "the union of"


def test_a_seed_gives_the_same_text_and_another_seed_another(trained):
    texts = [generate_text(trained / "run", PROMPT, 12, seed=seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert all(text.startswith(PROMPT) and len(text) > len(PROMPT) for text in texts)


@torch.no_grad()
def test_temperature_zero_always_takes_the_most_probable_token(trained):
    model, tokenizer = load_model(trained / "run"), load_tokenizer(trained / "run")
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    before = ids.shape[1]
    for _ in range(6):
        following = model(ids).logits[0, -1].argmax()
        ids = torch.cat([ids, following.view(1, 1)], dim=1)
    said = PROMPT + tokenizer.decode(ids[0, before:], skip_special_tokens=True)
    assert generate_text(trained / "run", PROMPT, 6, temperature=0.0) == said


def test_the_last_position_can_be_written_and_no_further(trained):
    room = 32 - len(load_tokenizer(trained / "run")(PROMPT).input_ids)
    generate_text(trained / "run", PROMPT, room, temperature=0)
    with pytest.raises(SettingError, match=rf"--max-new-tokens must be <= {room}, .* got {room + 1}; lower it"):
        generate_text(trained / "run", PROMPT, room + 1)
    with pytest.raises(SettingError, match=r"--prompt must be shorter than the model's 32 positions, got '.* tokens'"):
        generate_text(trained / "run", PROMPT * 40, 1)


def test_a_saved_model_without_its_run_folder_can_write(trained):
    written = generate_text(trained / "run" / "model", PROMPT, 3, temperature=0)
    assert written == generate_text(trained / "run", PROMPT, 3, temperature=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompt": ""}, "--prompt must be at least one token long, got ''"),
        ({"max_new_tokens": 0}, "--max-new-tokens must be >= 1, got 0"),
        ({"temperature": -1.0}, r"--temperature must be 0 \(greedy\) or in \[0.01, 100\], got -1.0"),
        ({"temperature": float("nan")}, "--temperature must be 0 .* got nan"),
        ({"temperature": 1e-9}, "--temperature must be 0 .* got 1e-09"),
        ({"top_p": 0.0}, r"--top-p must be in \(0, 1\], got 0.0"),
        ({"top_p": float("nan")}, r"--top-p must be in \(0, 1\], got nan"),
        ({"seed": -1}, "--seed must be in"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_refused_before_anything_is_loaded(tmp_path, settings, message):
    with pytest.raises(SettingError, match=message):
        generate_text(tmp_path / "no run", **{"prompt": "a", **settings})


@pytest.mark.parametrize("temperature", [0.01, 100.0])
def test_the_extreme_temperatures_work(trained, temperature):
    generate_text(trained / "run", PROMPT, 4, temperature=temperature)
