"""Memory that an expert cache takes from the page cache, and where that turns against it."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available_ram_bytes() -> int | None:
    """Return the memory this process could take now, page cache included; None where the system does not tell.

    The least of what the system has to spare and of what the process' control group still allows.
    """
    found = [amount for amount in (_available(), _cgroup_room()) if amount is not None]
    return min(found) if found else None


def starvation_warning(
    cache_bytes: int,
    *,
    ram_bytes: int,
    model_bytes: int,
    demand_bytes: int,
    other_bytes: int = 0,
) -> str | None:
    """Say in one line where a cache in main memory leaves the page cache too little; None where it does not.

    What the cache does not hold is read from files through the page cache, which lives on what is left. A cache that
    grows there raises its own hit rate and slows every miss: measured elsewhere, hits rose from 0.46 to 0.60 while
    speed fell to a third.

    Args:
        cache_bytes: Of the expert cache.
        ram_bytes: Main memory that may be used; see `available_ram_bytes`.
        model_bytes: Of all experts.
        demand_bytes: Of the experts of one token, which a read ahead must have room for.
        other_bytes: Of dense weights, keys and values and all else that stays in memory.
    """
    left = ram_bytes - cache_bytes - other_bytes
    if left < 0:
        taken = f"{_gib(cache_bytes)} cache + {_gib(other_bytes)} other"
        return f"the cache does not fit: {taken} > {_gib(ram_bytes)} of memory, the system would swap; make it smaller"
    uncached = max(0, model_bytes - cache_bytes)
    need = min(demand_bytes, uncached)
    if left < need:
        return (
            f"the cache starves the page cache: {_gib(left)} left for {_gib(uncached)} of uncached experts, less than "
            f"the {_gib(need)} one token asks for; a smaller cache may be faster"
        )
    return None


def page_cache_share(cache_bytes: int, *, ram_bytes: int, model_bytes: int, other_bytes: int = 0) -> float:
    """Return the share of the uncached experts that the page cache can hold, in [0, 1]; 1 where all are cached."""
    uncached = model_bytes - cache_bytes
    return 1.0 if uncached <= 0 else min(1.0, max(0, ram_bytes - cache_bytes - other_bytes) / uncached)


def _available() -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return _physical()
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable" and rest.split()[:1] and rest.split()[0].isdigit():
            return int(rest.split()[0]) * 1024
    return _physical()


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _cgroup_room() -> int | None:
    limit, used = (_number(CGROUP / name) for name in ("memory.max", "memory.current"))
    return None if limit is None or used is None else max(0, limit - used)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
