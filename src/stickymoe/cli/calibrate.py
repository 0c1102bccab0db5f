"""`stickymoe calibrate`: measure what moving and computing an expert takes on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from stickymoe.cli.quantities import Bytes


@click.command()
@click.option("--expert-bytes", type=Bytes(), required=True, help="Size of one expert as stored, such as 12.6MiB.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=".",
    show_default=True,
    help="A folder on the disk that the experts would be read from; a file is written there and removed.",
)
@click.option("--out", type=click.Path(path_type=Path), default="calibration.json", show_default=True, help="Result.")
@click.option("--queue-depth", "depths", multiple=True, type=click.IntRange(1, 256), help="Reads at once; repeatable.")
@click.option("--seconds", type=click.FloatRange(min=0), default=0.5, show_default=True, help="Time for each size.")
@click.option("--max-file", type=Bytes(), default="1GiB", show_default=True, help="Largest file to write.")
@click.option(
    "--device", type=click.Choice(("auto", "cuda", "none")), default="auto", show_default=True, help="Accelerator."
)
def calibrate(
    expert_bytes: int, folder: Path, out: Path, depths: tuple[int, ...], seconds: float, max_file: int, device: str
) -> None:
    """Measure disk reads, copies and an expert's products at the size of an expert, and keep them in a JSON file.

    `simulate --cost FILE` and `diagnose --cost FILE` turn misses into milliseconds with it.

    \b
    Examples:
      stickymoe calibrate --expert-bytes 13219200
      stickymoe calibrate --expert-bytes 2.53MiB --folder /data/models --out nvme.json
    """
    from stickymoe.cache.calibration import calibrate as measure
    from stickymoe.cache.calibration import save_calibration
    from stickymoe.cache.calibration.measure import QUEUE_DEPTHS
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.experiments.accelerator import find_accelerator
    from stickymoe.experiments.diagnosis.machine import machine_table

    found = find_accelerator(device, expert_bytes)
    with progress_bars() as report:
        measured = measure(
            folder,
            expert_bytes,
            queue_depths=depths or QUEUE_DEPTHS,
            max_bytes=max_file,
            seconds=seconds,
            device_copy=found.copy if found else None,
            expert_matmul=found.matmul if found else None,
            on_step=lambda step: report(f"measuring: {step}", 0, None),
        )
    save_calibration(measured, out)
    console().print(machine_table(measured))
    for note in measured.notes:
        click.echo(f"note: {note}")
    click.echo(f"calibration: {out}")
