"""Keeps freed memory in the process: on the CPU, every step and batch asks for the same large blocks again."""

from __future__ import annotations

import ctypes
import sys

# mallopt(3), glibc's numbers
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and not to hand freed ones back to the system.

    By default every block over 32 MB is mapped anew, so that each step pays for tens of thousands of page faults. What
    is kept is what the step needs at its peak anyway. Does nothing on other C libraries.

    Returns:
        Whether the setting was taken.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl has none
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
