"""Vocabulary projection and cross-entropy, forward and backward: ours, by chunk size too, torch's own, full logits.

    python benchmarks/cross_entropy.py --json benchmarks/results/cross_entropy.json    # about two minutes, two threads

The contenders take turns. Prints p20/p50/p80 in milliseconds and the largest extra memory by arithmetic, the JSON last.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from closing import close, made_with
from torch import Tensor
from torch.nn import functional
from train_step import linear, percentiles, timed

from stickymoe.model import linear_cross_entropy as room

TOKENS, HIDDEN, VOCAB = 4096, 128, 50257
CHUNKS = (128, 256, 512, 1024, 2048)


def in_chunks(chunk: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the product's function with another chunk size, as it is without matrix units."""

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        before = room.CHUNK_TOKENS, room.can_fuse
        room.CHUNK_TOKENS, room.can_fuse = chunk, lambda *_: False
        try:
            return room.linear_cross_entropy(hidden, weight, targets)
        finally:
            room.CHUNK_TOKENS, room.can_fuse = before

    return loss


def full_logits(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """All logits at once."""
    return functional.cross_entropy(functional.linear(hidden, weight).float(), targets)


def torchs_own(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """torch's chunked function, in the dtype that autocast would use."""
    if torch.is_autocast_enabled("cpu"):
        hidden, weight = hidden.bfloat16(), weight.bfloat16()
    return functional.linear_cross_entropy(hidden, weight, targets)


def main() -> None:
    """Measure, print a table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each contender (default 9)")
    parser.add_argument("--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    contenders: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"ours": room.linear_cross_entropy}
    contenders |= {f"ours, chunks of {chunk}": in_chunks(chunk) for chunk in CHUNKS} | {"full logits": full_logits}
    if hasattr(functional, "linear_cross_entropy"):
        contenders["torch linear_cross_entropy"] = torchs_own
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    weight = (torch.randn(VOCAB, HIDDEN) * 0.02).requires_grad_()
    targets = torch.randint(VOCAB, (TOKENS,))
    rows = []
    for bf16 in (True, False):
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for turn in range(options.rounds + 1):
            for name, loss_of in contenders.items():
                begin = time.perf_counter()
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    loss = loss_of(hidden, weight, targets)
                loss.backward()
                if turn:
                    seconds[name].append(time.perf_counter() - begin)
                hidden.grad = weight.grad = None
                print(f"turn {turn}/{options.rounds} {name}", file=sys.stderr, flush=True)
        rows += [
            {"precision": "bf16" if bf16 else "float32", "contender": name, **percentiles(found)}
            for name, found in seconds.items()
        ]
    products = {chunk: linear(chunk, HIDDEN, VOCAB) for chunk in CHUNKS}
    bound = min(
        statistics.median([timed(work) for _ in range(options.rounds + 2)][2:]) * TOKENS / chunk
        for chunk, work in products.items()
    )
    for row in rows:
        print(
            f"{row['precision']:8} {row['contender']:28}{row['p20_ms']:8.0f}{row['p50_ms']:8.0f}{row['p80_ms']:8.0f} ms"
        )
    print(f"bound: the three bfloat16 products alone, {1e3 * bound:.0f} ms")
    result = {
        "what": f"projection and cross-entropy of {TOKENS} tokens, hidden {HIDDEN}, vocabulary {VOCAB}, both gradients",
        "rows": rows,
        "bound_bf16_ms": 1e3 * bound,
        "rounds": options.rounds,
        **made_with(),
    }
    close(result, options.json)


if __name__ == "__main__":
    main()
