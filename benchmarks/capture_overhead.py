"""What locality terms add to a training step of somebody else's model: a small Mixtral and a small Qwen3-MoE.

    python benchmarks/capture_overhead.py             # about five minutes, two threads, machine otherwise idle
    python benchmarks/capture_overhead.py --quick     # seconds; whether it runs, not how fast
    python benchmarks/capture_overhead.py --json benchmarks/results/capture_overhead.json

Four contenders take steps in turn in one process, each with a copy of the model, so that whatever else the machine
does reaches each of them: the step alone, the step with routing captured and nothing done with it, the step with
`StickyObjective` (consistency and load balancing, counted over the step), and that with the measures that a Trainer
with the mixin logs. Their order changes from round to round, and overheads are medians of the differences within a
round. The bound beside them is the floor of any such term: the time of the terms alone, forward and backward, on gates
that are there already. Prints p20, p50, p80, the JSON last.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from closing import close, made_with
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM, PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from stickymoe.capture import capture_routing
from stickymoe.losses import Objective
from stickymoe.routing import Routing
from stickymoe.training import StickyObjective
from stickymoe.training.memory import keep_freed_memory
from stickymoe.training.meter import Meter

COEFFICIENTS = {"consistency": 0.1, "load_balancing": 0.01}
CONTENDERS = ("alone", "captured", "with terms", "with terms and log")
ASKED = 0.03
FULL, QUICK = (8, 256), (2, 16)


def mixtral(quick: bool) -> PreTrainedModel:
    """Eight experts, two a token."""
    width = 32 if quick else 256
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": 2 if quick else 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "bos_token_id": None, "eos_token_id": None}
    return MixtralForCausalLM(MixtralConfig(vocab_size=4096, num_local_experts=8, **sizes, **heads))


def qwen3_moe(quick: bool) -> PreTrainedModel:
    """64 experts, eight a token."""
    width = 32 if quick else 256
    sizes = {"hidden_size": width, "moe_intermediate_size": width // 4, "num_hidden_layers": 2 if quick else 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": width // 4}
    experts = {"num_experts": 64, "num_experts_per_tok": 8, "bos_token_id": None, "eos_token_id": None}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=4096, **sizes, **heads, **experts))


MODELS: dict[str, Callable[[bool], PreTrainedModel]] = {"mixtral": mixtral, "qwen3_moe": qwen3_moe}


class Bench:
    """Takes training steps of a copy of one model for each contender."""

    def __init__(self, name: str, quick: bool) -> None:
        torch.manual_seed(0)
        model = MODELS[name](quick).train()
        self.parameters = sum(weight.numel() for weight in model.parameters())
        self.models = {contender: copy.deepcopy(model) for contender in CONTENDERS}
        self.optimizers = {
            contender: torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
            for contender, model in self.models.items()
        }
        capture_routing(self.models["captured"])
        self.objectives = {contender: StickyObjective(COEFFICIENTS) for contender in CONTENDERS[2:]}
        for contender, sticky in self.objectives.items():
            sticky.attach(self.models[contender])
        batch, seq = QUICK if quick else FULL
        ids = torch.randint(model.config.vocab_size, (batch, seq))
        mask = (torch.arange(seq) < torch.randint(seq // 2, seq + 1, (batch, 1))).long()
        mask[0] = 1
        self.batch = {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}

    def step(self, contender: str) -> float:
        """Take one step and return its seconds."""
        model, optimizer = self.models[contender], self.optimizers[contender]
        begin = time.perf_counter()
        loss = model(**self.batch, use_cache=False).loss
        if contender in self.objectives:
            loss = loss + self._terms(contender, loss)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - begin

    def _terms(self, contender: str, loss: Tensor) -> Tensor:
        sticky = self.objectives[contender]
        sticky.begin_step([self.batch])
        if contender == "with terms":
            return sticky.loss()
        share, meter = sticky.share(), Meter()
        meter.add(loss, share.terms, *share.routings, by_layer=share.by_layer)
        meter.close_step(1, None)
        meter.read()
        return share.total

    def bound(self) -> float:
        """Return the seconds of the terms alone, forward and backward, on logits that are there already."""
        model = self.models["alone"]
        with torch.no_grad(), capture_routing(model) as capture:
            model(**self.batch, use_cache=False)
        routing = capture.routing
        logits = [layer.detach().float().requires_grad_() for layer in routing.router_logits]
        begin = time.perf_counter()
        gates = tuple(layer.softmax(-1) for layer in logits)
        mine = Routing(tuple(logits), gates, routing.expert_ids, routing.expert_weights, routing.token_mask)
        Objective(COEFFICIENTS)(mine).total.backward()
        return time.perf_counter() - begin


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return p20, p50 and p80 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{p}_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (20, 50, 80)}


def measure(name: str, rounds: int, quick: bool) -> dict[str, Any]:
    """Measure one model."""
    bench = Bench(name, quick)
    for _ in range(2):
        for contender in CONTENDERS:
            bench.step(contender)
    seconds: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    bounds = []
    for done in range(rounds):
        first = done % len(CONTENDERS)
        for contender in CONTENDERS[first:] + CONTENDERS[:first]:
            seconds[contender].append(bench.step(contender))
        bounds.append(bench.bound())
        if (done + 1) % 10 == 0:
            print(f"{name}: round {done + 1}/{rounds}", file=sys.stderr, flush=True)
    alone = statistics.median(seconds["alone"])
    more = {
        contender: [one - other for one, other in zip(seconds[contender], seconds["alone"], strict=True)]
        for contender in CONTENDERS[1:]
    }
    return {
        "parameters": bench.parameters,
        "contenders": {contender: percentiles(found) for contender, found in seconds.items()},
        "bound": percentiles(bounds),
        "overhead_rate": {contender: statistics.median(found) / alone for contender, found in more.items()},
        "bound_rate": statistics.median(bounds) / alone,
    }


def main() -> None:
    """Measure, print a table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="counted steps of each contender (default 30)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--quick", action="store_true", help="tiny models and few rounds, to see whether it runs")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    rounds = 6 if options.quick else options.rounds
    batch, seq = QUICK if options.quick else FULL
    result = {
        "what": f"one training step, {batch}x{seq} tokens, ragged, float32, with and without locality terms",
        "models": {name: measure(name, rounds, options.quick) for name in MODELS},
        "asked_overhead_rate": ASKED,
        "rounds": rounds,
        "threads": options.threads,
        "quick": options.quick,
        **made_with(),
    }
    report(result)
    close(result, options.json)


def report(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(result["what"])
    for name, found in result["models"].items():
        print(f"{name}, {found['parameters'] / 1e6:.1f} M parameters")
        print(f"  {'':22}{'p20':>9}{'p50':>9}{'p80':>9} ms   overhead")
        rows = {**found["contenders"], "bound: terms alone": found["bound"]}
        rates = {**found["overhead_rate"], "bound: terms alone": found["bound_rate"]}
        for contender, row in rows.items():
            rate = f"{100 * rates[contender]:9.1f} %" if contender in rates else ""
            print(f"  {contender:22}{row['p20_ms']:9.1f}{row['p50_ms']:9.1f}{row['p80_ms']:9.1f}   {rate}")
    print(f"asked: at most {100 * result['asked_overhead_rate']:.0f} % with terms")


if __name__ == "__main__":
    main()
