"""Whether this processor has matrix units, this system lends them, and numba compiles for them."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

from numba.core import config
from numba.core.registry import cpu_target

from stickymoe.core.openmp import shares_threads

NEEDED = {"+amx-tile", "+amx-bf16", "+avx512f", "+avx512bw"}
# Linux lends a process the tiles' registers, 8 KB a thread, when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18


@cache
def has_tiles() -> bool:
    """Return whether the code of this folder runs here, on torch's own threads."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or getattr(config, "DISABLE_JIT", False):
        return False
    # What numba compiles for, which its environment variables may set lower than the processor
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    if NEEDED.difference(features.split(",")) or not shares_threads():
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
