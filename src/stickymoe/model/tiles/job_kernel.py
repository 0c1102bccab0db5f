"""What the stages share: the table of addresses that they are called with, and the layouts of weight and tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from stickymoe.core.compiled import inlined
from stickymoe.model.tiles.instructions_kernel import add_product, clear_sum, pointer, rounded, store_sum

WORDS = 128  # rows of the weight in a block
TOKENS = 32  # tokens in a block; the width must be a multiple of it
TOGETHER = 4  # blocks of tokens in one product of the weight's gradient
NUMBERS = (
    "next",  # of the next piece of work; must come first
    "thread",  # of the next thread; must come second
    "stage",
    "tokens",
    "vocab",
    "width",
    "group",  # blocks of tokens in a piece of work
    "scratch_bytes",  # for each thread
)
ADDRESSES = (
    "tiles",  # the tiles' configuration
    "hidden",  # float32 (tokens, width)
    "weight",  # float32 (vocab, width)
    "targets",  # int64 (tokens), all in the vocabulary
    "scale",  # float32 (tokens)
    "order",  # int64 (tokens): the tokens sorted by target
    "starts",  # int64 (blocks of words + 1): where in that order each block's targets begin
    "rows",  # bfloat16 (words in blocks, width)
    "columns",  # bfloat16 (words in blocks / 32, width, 32)
    "inputs",  # bfloat16 (blocks of tokens, width / 2, TOKENS, 2)
    "weighed",  # bfloat16 (blocks of tokens, TOKENS / 2, width, 2): tokens 16 apart are neighbours
    "references",  # float32 (tokens in blocks)
    "at_targets",  # float32 (tokens, 2): probability - 1 of the target, its exponential as the products take it
    "losses",  # float32 (tokens)
    "grad_hidden",  # float32 (tokens, width)
    "grad_weight",  # float32 (words in blocks, width)
    "scratch",  # working room of all threads, at a whole cache line: a tile's row then never takes two
)
JOB = np.dtype([(name, np.int64) for name in NUMBERS + ADDRESSES])
# Palette 1: eight tiles of 16 rows, 64 bytes each
TILES = np.zeros(64, np.uint8)
TILES[0], TILES[16:32:2], TILES[48:56] = 1, 64, 16


# Where in a thread's scratch its logits, exponentials and sums begin
EXPONENTIALS = WORDS * TOKENS * 4
SUMS = EXPONENTIALS + WORDS * TOGETHER * TOKENS * 2


def scratch_size(width: int, group: int) -> int:
    """Return the bytes a thread needs: logits, exponentials, and for each token of a group a sum, and one of rows."""
    return SUMS + (group + 1) * TOKENS * 4 + group * width * TOKENS * 4


@inlined
def address(array: Any) -> Any:
    """Return where an array's first element lies."""
    return np.int64(array.ctypes.data)


@inlined
def pack_weight(job: Any, block: Any) -> None:
    """Write a block of words as rows and as columns; beyond the vocabulary both are 0."""
    width = job.width
    weight = carray(pointer(job.weight), (job.vocab, width), np.float32)
    rows = carray(pointer(job.rows + block * WORDS * width * 2), (WORDS, width), np.uint16)
    columns = carray(pointer(job.columns + block * WORDS * width * 2), (WORDS // 32, width, 32), np.uint16)
    for word in range(WORDS):
        known = block * WORDS + word < job.vocab
        for place in range(width):
            bits = rounded(weight[block * WORDS + word, place]) if known else np.uint16(0)
            rows[word, place] = bits
            columns[word // 32, place, word % 32] = bits


@inlined
def pack_inputs(job: Any, block: Any) -> None:
    """Write a block of tokens as pairs of neighbouring places; beyond the last token they are 0."""
    width = job.width
    hidden = carray(pointer(job.hidden), (job.tokens, width), np.float32)
    inputs = carray(pointer(job.inputs + block * TOKENS * width * 2), (width // 2, TOKENS, 2), np.uint16)
    for place in range(TOKENS):
        token = block * TOKENS + place
        for pair in range(width // 2):
            for side in range(2):
                known = token < job.tokens
                inputs[pair, place, side] = rounded(hidden[token, 2 * pair + side]) if known else np.uint16(0)


@inlined
def write_logits(job: Any, words: Any, tokens: Any, to: Any) -> None:
    """Write the logits of a block of words and a block of tokens, float32 (WORDS, TOKENS)."""
    width = job.width
    rows, inputs = job.rows + words * WORDS * width * 2, job.inputs + tokens * TOKENS * width * 2
    for word in range(0, WORDS, 32):
        clear_sum()
        for place in range(0, width, 32):
            add_product(rows + (word * width + place) * 2, width * 2, inputs + place * TOKENS * 2, TOKENS * 4)
        store_sum(to + word * TOKENS * 4, TOKENS * 4)
