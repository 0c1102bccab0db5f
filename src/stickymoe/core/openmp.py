"""Runs machine code on the threads that torch keeps: a second pool would fight with it for the same cores."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any


@cache
def _gomp_parallel() -> Any:
    """Return the entry of the OpenMP library that is loaded already; None where torch has other threads."""
    try:
        parallel = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW).GOMP_parallel
    except (OSError, AttributeError):
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return parallel


def shares_threads() -> bool:
    """Return whether `on_all_threads` can use the threads of OpenMP."""
    return _gomp_parallel() is not None


def on_all_threads(code: int, data: int, threads: int) -> None:
    """Call the C function at address `code` with the pointer `data` on so many threads at once, and wait for all.

    Without OpenMP it is called once. The threads divide the work themselves.
    """
    parallel = _gomp_parallel()
    if threads > 1 and parallel is not None:
        parallel(code, data, threads, 0)
    else:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code)(data)
