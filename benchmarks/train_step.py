"""Time and memory of one training step at the paper's small size, against plain full-logit cross-entropy and Mixtral.

    python benchmarks/train_step.py                    # about six minutes, two threads, machine otherwise idle
    python benchmarks/train_step.py --rounds 5 --json benchmarks/results/train_step.json

Each contender lives in a process of its own, and they take blocks of steps in turn, so that whatever else the machine
does reaches each of them; the first step of a block, on a cold cache, does not count. All run as StickyTrainer would
run them. The floor takes its turn after the product: all matrix products of a step, counted, each as bare bfloat16 at
its shape in this model, and nothing between them. The chunked floor is harder: the vocabulary's products at the chunk
size that runs fastest. Prints p20, p50, p80, the JSON last.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from closing import close, made_with
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from stickymoe.losses import Objective
from stickymoe.model import StickyMoEConfig, StickyMoEForCausalLM
from stickymoe.training.memory import keep_freed_memory

BATCH, SEQ = 16, 256
TOKENS = BATCH * SEQ
CONFIG = StickyMoEConfig.preset("paper-small")
BOTH_TERMS = {"consistency": 0.1, "anchor": 1.0, "load_balancing": 0.01}
BLOCK_STEPS = 4
PRODUCT, FLOOR, CHUNKED = "product bf16", "floor", "vocabulary, chunked"


def product_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The product: chunked projection and cross-entropy, sticky objective."""
    out = model(inputs, shift_labels=targets)
    return out.loss + Objective(BOTH_TERMS)(out.routing).total


def full_logit_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The same model and objective, all logits at once, as transformers computes the loss."""
    out = model(inputs)
    loss = cross_entropy(out.logits.flatten(0, 1).float(), targets.flatten())
    return loss + Objective(BOTH_TERMS)(out.routing).total


def mixtral_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """transformers' Mixtral with its own loss and load balancing."""
    return model(inputs, labels=inputs, shift_labels=targets.contiguous()).loss


def sticky() -> nn.Module:
    """The reference model at the paper's small size."""
    return StickyMoEForCausalLM(CONFIG)


def mixtral() -> nn.Module:
    """Mixtral of the same width, depth, heads, experts, vocabulary; gated experts of 2/3 the width weigh the same."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=CONFIG.vocab_size,
        hidden_size=CONFIG.hidden_size,
        intermediate_size=-(-CONFIG.expert_intermediate_size * 2 // 3 // 8) * 8,  # its kernel wants multiples of 8
        num_hidden_layers=CONFIG.num_hidden_layers,
        num_attention_heads=CONFIG.num_attention_heads,
        num_key_value_heads=CONFIG.num_attention_heads,
        num_local_experts=CONFIG.num_experts,
        num_experts_per_tok=CONFIG.num_experts_per_tok,
        max_position_embeddings=CONFIG.max_position_embeddings,
        tie_word_embeddings=True,
        output_router_logits=True,
        router_aux_loss_coef=0.01,
        bos_token_id=None,
        eos_token_id=None,
    )
    return MixtralForCausalLM(config)


CONTENDERS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], bool]] = {
    PRODUCT: (sticky, product_loss, True),
    "full logits float32": (sticky, full_logit_loss, False),
    "full logits bf16": (sticky, full_logit_loss, True),
    "mixtral bf16": (mixtral, mixtral_loss, True),
}


class Stepper:
    """Takes training steps of one contender on random tokens."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        build, self.loss_of, self.bf16 = CONTENDERS[name]
        self.model = build().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.tokens = torch.randint(CONFIG.vocab_size, (BATCH, SEQ + 1))

    def step(self) -> float:
        """Take one step and return its seconds."""
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss_of(self.model, self.tokens[:, :-1], self.tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begin


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return p20, p50 and p80 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{p}_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (20, 50, 80)}


class Floor:
    """Takes the multiply-adds of a training step, forward and both gradients, as bare bfloat16 products.

    Attributes:
        flops: Counted operations of a step by kind of product. `vocabulary, chunked` does the work of `vocabulary` at
            the chunk size that runs fastest, in its stead.
    """

    def __init__(self) -> None:
        hidden, width, vocab = CONFIG.hidden_size, CONFIG.expert_intermediate_size, CONFIG.vocab_size
        heads, layers, experts = CONFIG.num_attention_heads, CONFIG.num_hidden_layers, CONFIG.num_experts
        rows = TOKENS * CONFIG.num_experts_per_tok // experts
        each = hidden // heads
        a = torch.randn(BATCH * heads, SEQ, each, dtype=torch.bfloat16)
        scores = torch.randn(BATCH * heads, SEQ, SEQ, dtype=torch.bfloat16)
        wide, narrow = torch.empty_like(scores), torch.empty_like(a)

        def attention() -> None:
            for _ in range(2):
                torch.bmm(a, a.transpose(1, 2), out=wide)
            for _ in range(4):
                torch.bmm(scores, a, out=narrow)

        chunks = {size: linear(size, hidden, vocab) for size in (256, 512, 1024)}
        rates = {size: min(timed(work) for _ in range(4)) / size for size, work in chunks.items()}
        best = min(rates, key=lambda size: rates[size])
        linears = {  # name: (rows, inputs, outputs, how many a step)
            "query-key-value": (TOKENS, hidden, 3 * hidden, layers),
            "attention output": (TOKENS, hidden, hidden, layers),
            "expert up": (rows, hidden, width, layers * experts),
            "expert down": (rows, width, hidden, layers * experts),
            "vocabulary": (TOKENS, hidden, vocab, 1),
        }
        self.flops = {name: 6 * m * k * n * times for name, (m, k, n, times) in linears.items()}
        self.flops["attention scores"] = 12 * BATCH * heads * SEQ * SEQ * each * layers
        self.flops[CHUNKED] = self.flops["vocabulary"]
        self._work = {name: (linear(m, k, n), times) for name, (m, k, n, times) in linears.items()}
        self._work["attention scores"] = (attention, layers)
        self._work[CHUNKED] = (chunks[best], TOKENS // best)

    def step(self) -> dict[str, float]:
        """Compute all of a step's products, the vocabulary's in both ways, and return the seconds of each kind."""
        return {name: sum(timed(work) for _ in range(times)) for name, (work, times) in self._work.items()}


def linear(m: int, k: int, n: int) -> Callable[[], object]:
    """Return a function that computes a linear layer's three products: output, input gradient, weight gradient."""
    x, w, g = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((m, k), (n, k), (m, n)))
    y, dx, dw = torch.empty_like(g), torch.empty_like(x), torch.empty_like(w)

    def products() -> None:
        torch.mm(x, w.t(), out=y)
        torch.mm(g, w, out=dx)
        torch.mm(g.t(), x, out=dw)

    return products


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def summarise_floor(steps: list[dict[str, float]], flops: dict[str, int]) -> dict[str, Any]:
    """Return the percentiles of both floors over their steps, and the median time and rate of each kind of product."""
    medians = {name: statistics.median(step[name] for step in steps) for name in flops}
    without = {name: count for name, count in flops.items() if name != CHUNKED}
    return {
        **percentiles([sum(step[name] for name in without) for step in steps]),
        "chunked": percentiles([sum(step.values()) - step["vocabulary"] for step in steps]),
        "flops": sum(without.values()),
        "parts": [
            {"product": name, "flops": count, "seconds": medians[name],
             "teraflops_per_second": count / medians[name] / 1e12}
            for name, count in flops.items()
        ],
    }  # fmt: skip


def cost_of_terms(rounds: int) -> dict[str, float]:
    """Return the milliseconds, forward and backward, that consistency and anchor add to load balancing alone."""
    model = sticky().train()
    routing = model(torch.randint(CONFIG.vocab_size, (BATCH, SEQ)), return_logits=False, use_cache=False).routing
    logits = [layer.detach().requires_grad_() for layer in routing.router_logits]

    def run(coefficients: dict[str, float]) -> float:
        gates = tuple(layer.softmax(-1) for layer in logits)
        mine = type(routing)(tuple(logits), gates, routing.expert_ids, routing.expert_weights)
        begin = time.perf_counter()
        Objective(coefficients)(mine).total.backward()
        return time.perf_counter() - begin

    alone, both = [], []
    for _ in range(4 * rounds):
        alone.append(run({"load_balancing": 0.01}))
        both.append(run(BOTH_TERMS))
    return {
        "load_balancing_ms": percentiles(alone)["p50_ms"],
        "with_consistency_and_anchor_ms": percentiles(both)["p50_ms"],
        "added_ms": percentiles(both)["p50_ms"] - percentiles(alone)["p50_ms"],
    }


class Contender:
    """A process that takes steps of one contender when told to."""

    def __init__(self, name: str, threads: int) -> None:
        command = [sys.executable, __file__, "--serve", name, "--threads", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, steps: int) -> dict[str, Any]:
        """Return the seconds of so many steps, and the memory so far in MiB."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(steps, file=self.process.stdin, flush=True)
        return dict(json.loads(self.process.stdout.readline()))


def serve(name: str) -> None:
    """Answer with steps, or steps of the floor, until the input ends; the other half of `Contender`."""
    stepper = Floor() if name == FLOOR else Stepper(name)
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    for line in sys.stdin:
        seconds = [stepper.step() for _ in range(int(line))]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        told = {"seconds": seconds, "peak_mib": round(peak), "added_by_steps_mib": round(peak - before)}
        if isinstance(stepper, Floor):
            told["flops"] = stepper.flops
        print(json.dumps(told), flush=True)


def main() -> None:
    """Measure, print a table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=24, help="counted steps of each contender (default 24)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--json", type=Path, help="also write the result here")
    parser.add_argument("--serve", choices=[*CONTENDERS, FLOOR], help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    if options.serve:
        serve(options.serve)
        return
    order = [PRODUCT, FLOOR, *(name for name in CONTENDERS if name != PRODUCT)]
    contenders = {name: Contender(name, options.threads) for name in order}
    seconds: dict[str, list[Any]] = {name: [] for name in order}
    memory = {name: contender.ask(BLOCK_STEPS) for name, contender in contenders.items()}  # to warm up
    blocks = -(-options.rounds // (BLOCK_STEPS - 1))
    for block in range(blocks):
        for name, contender in contenders.items():
            memory[name] = contender.ask(BLOCK_STEPS)
            seconds[name] += memory[name].pop("seconds")[1:]
        last = seconds[PRODUCT][-1]
        print(f"block {block + 1}/{blocks}: the product's last step {last * 1e3:.0f} ms", file=sys.stderr, flush=True)
    for contender in contenders.values():
        contender.process.communicate()
    bound = summarise_floor(seconds.pop(FLOOR), memory.pop(FLOOR)["flops"])
    terms = cost_of_terms(options.rounds)
    rows = {name: percentiles(found) | memory[name] for name, found in seconds.items()}
    ours = rows[PRODUCT]
    result = {
        "what": f"one training step, {BATCH}x{SEQ} tokens, paper-small, vocabulary {CONFIG.vocab_size}",
        "contenders": rows,
        "floor": bound,
        "terms": terms,
        "ratios": {
            "speed_over_float32_full_logits": rows["full logits float32"]["p50_ms"] / ours["p50_ms"],
            "speed_over_bf16_full_logits": rows["full logits bf16"]["p50_ms"] / ours["p50_ms"],
            "speed_over_mixtral_bf16": rows["mixtral bf16"]["p50_ms"] / ours["p50_ms"],
            "peak_memory_of_float32_full_logits": ours["peak_mib"] / rows["full logits float32"]["peak_mib"],
            "peak_memory_of_bf16_full_logits": ours["peak_mib"] / rows["full logits bf16"]["peak_mib"],
            "rate_of_floor": bound["p50_ms"] / ours["p50_ms"],
            "rate_of_chunked_floor": bound["chunked"]["p50_ms"] / ours["p50_ms"],
            "terms_share_of_step": terms["added_ms"] / ours["p50_ms"],
        },
        "steps": blocks * (BLOCK_STEPS - 1),
        **made_with(),
    }
    report(result)
    close(result, options.json)


def report(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(result["what"])
    print(f"{'':24}{'p20':>8}{'p50':>8}{'p80':>8} ms   {'peak':>6}{'added':>7} MiB")
    for name, row in result["contenders"].items():
        print(
            f"{name:24}{row['p20_ms']:8.0f}{row['p50_ms']:8.0f}{row['p80_ms']:8.0f}      "
            f"{row['peak_mib']:6.0f}{row['added_by_steps_mib']:7.0f}"
        )
    for name, row in (("floor", result["floor"]), ("floor, chunked", result["floor"]["chunked"])):
        print(f"{name:24}{row['p20_ms']:8.0f}{row['p50_ms']:8.0f}{row['p80_ms']:8.0f}")
    for part in result["floor"]["parts"]:
        print(f"  {part['product']:22}{'':8}{1e3 * part['seconds']:8.1f}   {part['teraflops_per_second']:.2f} Tflop/s")
    for name, value in result["ratios"].items():
        print(f"{name:40}{value:8.3f}")


if __name__ == "__main__":
    main()
