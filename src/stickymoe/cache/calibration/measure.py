"""Measure this machine: every link an expert may come over, and what computing with it takes."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from stickymoe.cache.calibration.disk import ALIGNMENT, aligned, measure_reads
from stickymoe.cache.calibration.memory import Copy, measure_copies, measure_matmul, memory_copy, vector_products
from stickymoe.cache.calibration.record import Calibration, Link, LinkName
from stickymoe.cache.calibration.scratch_file import ScratchFile, file_system_of, scratch_file
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_at_least

QUEUE_DEPTHS = (1, 4, 16)
LARGEST_EXPERT = 2**32
IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def calibrate(
    folder: Path,
    expert_bytes: int,
    *,
    queue_depths: Sequence[int] = QUEUE_DEPTHS,
    max_bytes: int = 2**30,
    seconds: float = 0.5,
    device_copy: Copy | None = None,
    expert_matmul: Callable[[], float] | None = None,
    hardware: Mapping[str, str | int | float] | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Calibration:
    """Measure disk, memory, and where asked the accelerator, at the size of one expert.

    Writes a file of random bytes into `folder` whose name is gone before the first byte: no way of stopping leaves it.

    Args:
        folder: On the disk the experts would be read from.
        expert_bytes: Size of one expert's weights as stored.
        queue_depths: Reads under way at once.
        max_bytes: Largest file to write; a quarter of the free space is never passed.
        seconds: Time to spend on each size of each link.
        device_copy: Copies that many bytes from host memory to the accelerator, waits, and returns the seconds.
        expert_matmul: Computes one expert for one token and returns the seconds; a float32 product in numpy if not
            given.
        hardware: What else the numbers depend on; the system and its cores if not given.
        on_step: Told what is measured next.

    Raises:
        SettingError: A setting breaks its rule.
        StorageError: The folder is missing or full, or cannot be read this way.
    """
    _check(expert_bytes, queue_depths, seconds)
    block_bytes = max(aligned(expert_bytes), 2 * ALIGNMENT)
    told = on_step or (lambda step: None)
    told(f"write random bytes to {folder}")
    with scratch_file(folder, block_bytes, max_bytes) as file:
        links = _disk_links(file, block_bytes, sorted(set(queue_depths)), seconds, told)
        notes = _notes(file, file_system_of(folder))
    told("copy in memory")
    links.append(measure_copies(memory_copy(block_bytes), "memory", block_bytes, seconds=seconds))
    if device_copy is not None:
        told("copy to the accelerator")
        links.append(measure_copies(device_copy, "device", block_bytes, seconds=seconds))
    told("compute an expert")
    if expert_matmul is None:
        notes.append("matmul: a float32 matrix-vector product of numpy, not the engine's own kernel")
    matmul = measure_matmul(expert_matmul or vector_products(expert_bytes), seconds=seconds)
    facts: dict[str, str | int | float] = dict(hardware or {"system": _system(), "cores": os.cpu_count() or 1})
    facts |= {"folder_file_system": file_system_of(folder), "file_bytes": file.size}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(expert_bytes, tuple(links), matmul, facts, date, tuple(notes))


def _check(expert_bytes: int, queue_depths: Sequence[int], seconds: float) -> None:
    if not 1 <= expert_bytes <= LARGEST_EXPERT:
        raise SettingError.broken("calibrate.expert_bytes", f"from 1 to {LARGEST_EXPERT}", expert_bytes)
    if not queue_depths or not all(1 <= depth <= 256 for depth in queue_depths):
        raise SettingError.broken("calibrate.queue_depths", "one or more, each from 1 to 256", list(queue_depths))
    require_at_least("calibrate.seconds", seconds, 0.0)
    if not hasattr(os, "preadv"):
        raise SettingError.broken(
            "calibrate", "run on a system with positioned reads (Linux, macOS, BSD)", platform.system()
        )


def _disk_links(
    file: ScratchFile, block_bytes: int, queue_depths: Sequence[int], seconds: float, told: Callable[[str], None]
) -> list[Link]:
    links = []
    names: tuple[LinkName, ...] = ("disk-random", "disk-sequential")
    for name in names:
        for depth in queue_depths:
            told(f"{name.removeprefix('disk-')} reads, {depth} at once")
            links.append(measure_reads(file, name, block_bytes, depth, seconds=seconds))
    told("reads from the page cache")
    return [*links, measure_reads(file, "page-cache", block_bytes, 1, seconds=seconds)]


def _notes(file: ScratchFile, file_system: str) -> list[str]:
    notes = []
    if file.direct is None:
        notes.append(
            "disk: this system refuses O_DIRECT here; reads went through the page cache after asking it to forget, "
            "and may be too fast"
        )
    if file_system in IN_MEMORY:
        notes.append(f"disk: the folder is on {file_system}, which is memory; choose one on the disk of the experts")
    return notes


def _system() -> str:
    return f"{platform.system()} {platform.machine()}"
