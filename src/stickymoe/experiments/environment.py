"""What a result was made on: hardware, versions, commit."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stickymoe.core.files import sha256_of


def hardware() -> dict[str, Any]:
    """Return the processor, the cores this process may use, the memory in GiB, and the accelerator if there is one."""
    import torch

    facts: dict[str, Any] = {
        "processor": _processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    memory = _memory_gib()
    if memory:
        facts["memory_gib"] = memory
    if torch.cuda.is_available():
        facts["accelerator"] = torch.cuda.get_device_name()
    return facts


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Return the versions that decide a result."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("stickymoe", "torch", "transformers", "tokenizers")},
    }


def commit() -> str:
    """Return the commit of a source checkout (`+` if files differ from it), or "not a checkout"."""
    here = Path(__file__).parents[3]
    if not (here / ".git").exists():
        return "not a checkout"
    try:
        found = _git(here, "rev-parse", "--short=10", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", "src", "recipes")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found + ("+" if changed else "")


@cache
def code_version() -> str:
    """Return version and a checksum of the running code: equal where the same program would run again."""
    package = Path(__file__).parents[1]
    sources = "".join(f"{path.relative_to(package)} {sha256_of(path)}\n" for path in sorted(package.rglob("*.py")))
    return f"{version('stickymoe')} {hashlib.sha256(sources.encode()).hexdigest()[:12]}"


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, OSError, ValueError):
        return None
