"""The stage that takes blocks of the vocabulary, for the gradient of the weight; and the call that runs any stage."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import from_dtype, types
from numba.np.numpy_support import carray

from stickymoe.core.compiled import inlined
from stickymoe.model.tiles.instructions_kernel import (
    add_product,
    clear_sum,
    configure_tiles,
    load_sum,
    next_number,
    pointer,
    save_tiles,
    store_sum,
    widened,
    write_exponentials,
)
from stickymoe.model.tiles.job_kernel import (
    EXPONENTIALS,
    JOB,
    TOGETHER,
    TOKENS,
    WORDS,
    address,
    pack_weight,
    write_logits,
)
from stickymoe.model.tiles.tokens_kernel import take_tokens

STAGES = PACK, OF_TOKENS, OF_VOCABULARY = 0, 1, 2
SIGNATURE = types.void(types.CPointer(from_dtype(JOB)))  # type: ignore[no-untyped-call]


@inlined
def finish_targets(job: Any, words: Any) -> None:
    """Put right what the tokens whose target lies in a block of words have added to the gradient of that word."""
    width = job.width
    hidden = carray(pointer(job.hidden), (job.tokens, width), np.float32)
    weighed = carray(pointer(job.weighed), (job.tokens // TOKENS + 1, TOKENS // 2, width, 2), np.uint16)
    scale = carray(pointer(job.scale), (job.tokens,), np.float32)
    targets = carray(pointer(job.targets), (job.tokens,), np.int64)
    at_targets = carray(pointer(job.at_targets), (job.tokens, 2), np.float32)
    order = carray(pointer(job.order), (job.tokens,), np.int64)
    starts = carray(pointer(job.starts), (words + 2,), np.int64)
    grads = carray(pointer(job.grad_weight), (job.vocab, width), np.float32)
    for number in range(starts[words], starts[words + 1]):
        token = order[number]
        share, taken, word = at_targets[token, 0] * scale[token], at_targets[token, 1], targets[token]
        for place in range(width):
            added = taken * widened(weighed[token // TOKENS, token % 16, place, token % TOKENS // 16])
            grads[word, place] += share * hidden[token, place] - added


@inlined
def take_words(job: Any, words: Any, scratch: Any) -> None:
    """Write the gradient of a block of the weight's rows."""
    width, shares, stride = job.width, scratch + EXPONENTIALS, TOGETHER * TOKENS * 2
    grads = job.grad_weight + words * WORDS * width * 4
    for first in range(0, (job.tokens + TOKENS - 1) // TOKENS, TOGETHER):
        for block in range(TOGETHER):
            write_logits(job, words, first + block, scratch)
            references, to = job.references + (first + block) * TOKENS * 4, shares + block * TOKENS * 2
            for word in range(WORDS):
                write_exponentials(scratch + word * TOKENS * 4, references, to + word * stride)
        weighed = job.weighed + first * TOKENS * width * 2
        for word in range(0, WORDS, 32):
            for place in range(0, width, 32):
                total = grads + (word * width + place) * 4
                if first == 0:
                    clear_sum()
                else:
                    load_sum(total, width * 4)
                for block in range(TOGETHER):
                    right = weighed + (block * TOKENS * width + place * 2) * 2
                    add_product(shares + word * stride + block * TOKENS * 2, stride, right, width * 4)
                store_sum(total, width * 4)
    finish_targets(job, words)


def run_stage(jobs: Any) -> None:
    """Take pieces of the job's stage until none is left; every thread calls it with the same pointer."""
    job = carray(jobs, 1)[0]
    counter, saved = address(carray(jobs, 1)), np.empty(64, np.uint8)
    blocks_of_words = (job.vocab + WORDS - 1) // WORDS
    blocks = (job.tokens + TOGETHER * TOKENS - 1) // (TOGETHER * TOKENS) * TOGETHER
    scratch = job.scratch + next_number(counter + 8) * job.scratch_bytes
    # Tiles belong to the thread: whoever configured them before finds them as they were
    save_tiles(address(saved))
    configure_tiles(job.tiles)
    while True:
        number = next_number(counter)
        if job.stage == OF_TOKENS:
            if number * job.group >= blocks:
                break
            take_tokens(job, number * job.group, min(job.group, blocks - number * job.group), scratch)
        elif number >= blocks_of_words:
            break
        elif job.stage == PACK:
            pack_weight(job, number)
        else:
            take_words(job, number, scratch)
    configure_tiles(address(saved))
