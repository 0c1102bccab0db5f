"""`compiled`: machine code from Python functions, kept on disk so that a second start does not compile.

Compiled functions live in files named `*_kernel.py` or `kernels.py`, which the tests' checks of types leave alone.
Numba compiles a function together with those it calls, but judges what it kept by the caller's own file; here a change
in any kernel file of a room renews the room's.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = Path(__file__).resolve().parents[1]
# Without the entries from Python and C that numba makes by default, which take a third of the compile time.
INLINED: Any = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
KERNEL_FILES = ("_kernel.py", "kernels.py")
# C knows an address only: the code behind it stays as long as the process
_KEPT: list[Any] = []


def compiled(function: F) -> F:
    """Compile `function` at its first call for the types it is called with; it runs without the interpreter's lock.

    Where no folder can be written the code is compiled anew in every process.
    """
    return cast(F, _kept_on_disk(njit(nogil=True)(function), function))


def inlined(function: F) -> F:
    """Make `function` part of every compiled function that calls it; it is not meant to be called from Python."""
    return cast(F, njit(**INLINED)(function))


def c_function(function: Callable[..., None], signature: Any) -> int:
    """Compile `function` for one signature of numba's types and return the address that C calls it by."""
    code = _kept_on_disk(CFunc(function, (signature.args, signature.return_type), {}, {"nopython": True}), function)
    code.compile()
    _KEPT.append(code)
    return int(code.address)


def _kept_on_disk(code: Any, function: Callable[..., Any]) -> Any:
    with suppress(RuntimeError):  # numba found no folder to write to
        code._cache = _RoomCache(function)
    return code


def _borrowed(typing_context: Any, value: Any) -> Any:
    """Return the arrays of a (nested) tuple without their reference counts, which cost more than the work on them.

    For a compiled function's own arguments, which its caller keeps alive.
    """

    def stripped(context: Any, builder: Any, kind: Any, given: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value=given)
            array.meminfo = array.meminfo.type(None)
            array.parent = array.parent.type(None)
            return array._getvalue()
        if isinstance(kind, types.BaseTuple):
            parts: Any = kind
            for place, part in enumerate(parts):
                value = stripped(context, builder, part, builder.extract_value(given, place))
                given = builder.insert_value(given, value, place)
        return given

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return stripped(context, builder, value, arguments[0])

    return value(value), code


borrowed: Any = intrinsic(_borrowed)


class _RoomCache(FunctionCache):
    """Numba's store of one function's machine code, renewed when any kernel file of its room changes.

    What an older version of the package left is not even opened: it may name what is gone. A damaged or refusing disk
    costs the compile time, no more.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        sources = _kernel_sources(_room_of(function))
        self._stem = self._impl.filename_base
        name = f"{self._stem}.{sources[:16]}"
        self._cache_file = IndexDataCacheFile(self._cache_path, name, sources)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):
            for old in Path(self._cache_path).glob(f"{glob.escape(self._stem)}.*.nb[ci]"):
                if not old.name.startswith(self._cache_file._index_name.removesuffix(".nbi")):
                    old.unlink()
        with suppress(Exception):
            try:
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
            except Exception:
                self._cache_file.flush()  # type: ignore[no-untyped-call]
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def _room_of(function: Callable[..., Any]) -> Path:
    file = Path(function.__code__.co_filename).resolve()
    return PACKAGE / file.relative_to(PACKAGE).parts[0] if file.is_relative_to(PACKAGE) else file


@cache
def _kernel_sources(room: Path) -> str:
    files = room.rglob("*.py") if room.is_dir() else [room]
    digest = hashlib.sha256()
    for path in [Path(__file__), *sorted(path for path in files if path.name.endswith(KERNEL_FILES))]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
