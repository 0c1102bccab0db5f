"""Reads all whole numbers of a text in one go, once its shape is known to be right."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

# Whatever stands between digits ends a number
TO_LINES = bytes(byte if byte in b"0123456789" else ord("\n") for byte in range(256))


def numbers_in(text: bytes) -> np.ndarray:
    """Return every run of digits as int64, in order; a sign counts as what stands between.

    Args:
        text: At least one number, none of more than 18 digits.
    """
    table = pc.read_csv(
        pa.BufferReader(text.translate(TO_LINES)),
        read_options=pc.ReadOptions(column_names=["number"], use_threads=False),
        parse_options=pc.ParseOptions(quote_char=False),
        convert_options=pc.ConvertOptions(column_types={"number": pa.int64()}, null_values=[]),
    )
    numbers: np.ndarray = table["number"].to_numpy()
    return numbers
