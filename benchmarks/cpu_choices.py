"""Two choices that hold on the CPU alone, measured: attention written out, and experts' rows padded to blocks.

    python benchmarks/cpu_choices.py --json benchmarks/results/cpu_choices.json    # under a minute, two threads

Attention: one layer of paper-small, forward and backward in bfloat16, fused and `explicit_attention`, by turns.
Rows: one expert's up projection on row counts it has not seen before, against the same counts padded to whole blocks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from closing import close, made_with
from torch import nn
from torch.nn import functional
from train_step import percentiles

from stickymoe.model.attention import explicit_attention
from stickymoe.training.memory import keep_freed_memory

BATCH, HEADS, SEQ, WIDTH = 16, 4, 256, 32
HIDDEN, EXPERT_WIDTH, ROWS, BLOCK = 128, 512, 2048, 128


def seconds(work: Callable[[], object]) -> float:
    """Time one run."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def attention(rounds: int) -> dict[str, dict[str, float]]:
    """Return forward and backward of both kernels."""
    query, key, value = (
        torch.randn(BATCH, HEADS, SEQ, WIDTH, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
    )
    gradient = torch.randn_like(query)
    module = nn.Module()

    def fused() -> None:
        functional.scaled_dot_product_attention(query, key, value, is_causal=True).backward(gradient)

    def written_out() -> None:
        explicit_attention(module, query, key, value, None)[0].transpose(1, 2).backward(gradient)

    found: dict[str, list[float]] = {"fused": [], "written out": []}
    for _ in range(rounds + 2):
        found["fused"].append(seconds(fused))
        found["written out"].append(seconds(written_out))
    return {name: percentiles(times[2:]) for name, times in found.items()}


def rows(rounds: int) -> dict[str, dict[str, float]]:
    """Return the projection on ever new row counts, and on the same counts padded to whole blocks."""
    weight = torch.randn(EXPERT_WIDTH, HIDDEN, dtype=torch.bfloat16)
    counts = [ROWS - 7 * turn - 1 for turn in range(rounds)]
    for padded in range(0, ROWS + BLOCK, BLOCK):
        functional.linear(torch.randn(max(padded, 1), HIDDEN, dtype=torch.bfloat16), weight)
    found: dict[str, list[float]] = {"as they come": [], "padded to blocks": []}
    for count in counts:
        blocks = -(-count // BLOCK) * BLOCK
        for name, height in (("as they come", count), ("padded to blocks", blocks)):
            x = torch.randn(height, HIDDEN, dtype=torch.bfloat16)
            found[name].append(seconds(lambda x=x: functional.linear(x, weight)))  # type: ignore[misc]
    return {name: percentiles(times) for name, times in found.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="runs of each (default 30)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as StickyTrainer does
    torch.manual_seed(0)
    result = {
        "attention_forward_and_backward_a_layer": attention(options.rounds),
        "expert_projection": rows(options.rounds),
        "rounds": options.rounds,
        **made_with(),
    }
    for group in ("attention_forward_and_backward_a_layer", "expert_projection"):
        for name, row in result[group].items():
            print(f"{group:40} {name:18}" + "".join(f"{row[key]:9.2f}" for key in row) + " ms (p20, p50, p80)")
    close(result, options.json)


if __name__ == "__main__":
    main()
