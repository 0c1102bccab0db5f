"""The stage that takes groups of tokens: their losses, the gradients of their hidden states, their weights.

Logits stand in blocks of 128 words by 32 tokens, words in rows. So what is kept for each token (its reference, its sum)
lies side by side in a vector, and the exponentials come out as the pairs of rows that the next product wants to its
right. The reference that is subtracted is a logit seen earlier, replaced only where a later one is `SLACK` above it:
sums and exponentials stay far from the largest float, and what they were scaled by cancels out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from stickymoe.core.compiled import inlined
from stickymoe.model.tiles.instructions_kernel import (
    ROWS_AT_ONCE,
    add_exponentials,
    add_product,
    largest,
    load_sum,
    pointer,
    rounded,
    store_sum,
    widened,
)
from stickymoe.model.tiles.job_kernel import EXPONENTIALS, SUMS, TOKENS, WORDS, address, pack_inputs, write_logits

SLACK = np.float32(30)


@inlined
def raise_references(logits: Any, words: Any, tops: Any, references: Any, sums: Any, totals: Any) -> None:
    """Raise the references that these logits leave far behind, and scale what was summed with the old ones."""
    tops[:] = -np.inf
    whole = words - words % ROWS_AT_ONCE
    for start in range(0, whole, ROWS_AT_ONCE):
        for half in range(2):
            largest(address(logits) + (start * TOKENS + half * 16) * 4, TOKENS * 4, address(tops) + half * 64)
    for word in range(whole, words):
        for place in range(TOKENS):
            tops[place] = max(tops[place], logits[word, place])
    behind = False
    for place in range(TOKENS):
        behind |= tops[place] > references[place] + SLACK
    if behind:
        for place in range(TOKENS):
            if tops[place] > references[place] + SLACK:
                factor = np.float32(math.exp(references[place] - tops[place]))
                references[place] = tops[place]
                sums[place] *= factor
                for row in range(totals.shape[0]):
                    totals[row, place] *= factor


@inlined
def sum_exponentials(logits: Any, references: Any, sums: Any, pairs: Any) -> None:
    """Write the exponentials of a block of logits as pairs of rows, and add them to the sums."""
    for half in range(0, 128, 64):
        for word in range(0, WORDS, 2):
            row, to = logits + word * TOKENS * 4 + half, pairs + word * TOKENS * 2 + half
            add_exponentials(row, TOKENS * 4, references + half, sums + half, to)


@inlined
def add_weighed_rows(columns: Any, width: Any, pairs: Any, totals: Any) -> None:
    """Add a block of the weight's rows, weighed by their exponentials, to the totals, float32 (width, TOKENS)."""
    for place in range(0, width, 32):
        load_sum(totals + place * TOKENS * 4, TOKENS * 4)
        for word in range(0, WORDS, 32):
            add_product(columns + (word * width + place * 32) * 2, 64, pairs + word * TOKENS * 2, TOKENS * 4)
        store_sum(totals + place * TOKENS * 4, TOKENS * 4)


@inlined
def finish_token(job: Any, token: Any, total: Any, weighed_rows: Any) -> None:
    """Write a token's loss and gradient, given its sum and the sum of the weight's rows that its exponentials weigh."""
    width = job.width
    hidden = carray(pointer(job.hidden + token * width * 4), (width,), np.float32)
    grad = carray(pointer(job.grad_hidden + token * width * 4), (width,), np.float32)
    target = carray(pointer(job.targets), (job.tokens,), np.int64)[token]
    row = carray(pointer(job.rows + target * width * 2), (width,), np.uint16)
    scale = carray(pointer(job.scale), (job.tokens,), np.float32)[token]
    reference = carray(pointer(job.references), (job.tokens,), np.float32)[token]
    at_target = carray(pointer(job.at_targets + token * 8), (2,), np.float32)
    logit = np.float32(0)
    for place in range(width):
        logit += widened(rounded(hidden[place])) * widened(row[place])
    # Where the target is nearly sure, the rounding of its exponential would drown the little that is left of its share
    exponential = np.float32(math.exp(logit - reference))
    at_target[0] = exponential / total - np.float32(1)
    at_target[1] = widened(rounded(exponential))
    for place in range(width):
        word = widened(row[place])
        others = (weighed_rows[place] - at_target[1] * word) / total
        grad[place] = (others + at_target[0] * word) * scale
    loss = reference + np.float32(math.log(total)) - logit
    # Below 0 by rounding only; NaN stays
    carray(pointer(job.losses), (job.tokens,), np.float32)[token] = np.float32(0) if loss < 0 else loss


@inlined
def weigh_token(job: Any, token: Any, total: Any) -> None:
    """Write a token times scale / sum, beside the one 16 further; beyond the last token it is 0."""
    width, pair, side = job.width, token // TOKENS * 16 + token % 16, token % TOKENS // 16
    weighed = carray(pointer(job.weighed + pair * width * 4), (width, 2), np.uint16)
    if token >= job.tokens:
        weighed[:, side] = 0
        return
    hidden = carray(pointer(job.hidden + token * width * 4), (width,), np.float32)
    factor = carray(pointer(job.scale), (job.tokens,), np.float32)[token] / total
    for place in range(width):
        weighed[place, side] = rounded(hidden[place] * factor)


@inlined
def take_tokens(job: Any, first: Any, blocks: Any, scratch: Any) -> None:
    """Do all that this stage does for a group of tokens, `blocks` blocks from the `first` on."""
    width = job.width
    logits = carray(pointer(scratch), (WORDS, TOKENS), np.float32)
    tops = carray(pointer(scratch + SUMS), (TOKENS,), np.float32)
    sums = carray(pointer(scratch + SUMS + TOKENS * 4), (blocks, TOKENS), np.float32)
    totals = carray(pointer(scratch + SUMS + (blocks + 1) * TOKENS * 4), (blocks, width, TOKENS), np.float32)
    references = carray(pointer(job.references + first * TOKENS * 4), (blocks, TOKENS), np.float32)
    references[:], sums[:], totals[:] = -np.inf, 0, 0
    for block in range(blocks):
        pack_inputs(job, first + block)
    for words in range((job.vocab + WORDS - 1) // WORDS):
        known = min(WORDS, job.vocab - words * WORDS)
        for block in range(blocks):
            write_logits(job, words, first + block, scratch)
            logits[known:] = -np.inf
            raise_references(logits, known, tops, references[block], sums[block], totals[block])
            sum_exponentials(scratch, address(references[block]), address(sums[block]), scratch + EXPONENTIALS)
            columns = job.columns + words * WORDS * width * 2
            add_weighed_rows(columns, width, scratch + EXPONENTIALS, address(totals[block]))
    for block in range(blocks):
        for column in range(TOKENS):
            token = (first + block) * TOKENS + column
            weigh_token(job, token, sums[block, column])
            if token < job.tokens:
                finish_token(job, token, sums[block, column], totals[block, :, column])
