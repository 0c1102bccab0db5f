"""A calibration as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stickymoe.cache.calibration import Calibration
from stickymoe.experiments.diagnosis.wording import size

if TYPE_CHECKING:
    from rich.table import Table


def machine_table(measured: Calibration) -> Table:
    """Return one row a link: what an expert costs over it."""
    from rich.table import Table

    table = Table(title=f"an expert of {size(measured.expert_bytes)}")
    table.add_column("over")
    for heading in ("at once", "GB/s", "ms an expert", "from", "to"):
        table.add_column(heading, justify="right")
    for link in measured.links:
        times = [1000 * getattr(link.block, name) for name in ("p50", "p20", "p80")]
        table.add_row(
            link.name,
            str(link.queue_depth),
            f"{link.bandwidth_bytes_s() / 1e9:.2f}",
            *(f"{each:.3f}" for each in times),
        )
    if measured.matmul is not None:
        times = [1000 * getattr(measured.matmul, name) for name in ("p50", "p20", "p80")]
        table.add_row("computing it", "", "", *(f"{each:.3f}" for each in times))
    return table
