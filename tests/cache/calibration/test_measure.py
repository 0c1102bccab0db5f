"""Measuring: what was asked for is measured, injected measurements are used, refusals are notes."""

import errno
import os

import pytest

from stickymoe.cache.calibration import calibrate, load_calibration, save_calibration
from stickymoe.cache.calibration import measure as room
from stickymoe.cache.calibration.disk import Reader, aligned
from stickymoe.cache.calibration.memory import memory_copy, vector_products
from stickymoe.cache.calibration.scratch_file import scratch_file
from stickymoe.cache.calibration.timing import MAX_SAMPLES, MIN_SAMPLES, spread_of
from stickymoe.core.errors import SettingError, StorageError

QUICK = {"seconds": 0.0, "max_bytes": 2**20, "queue_depths": (2, 1)}


def test_every_link_is_measured_and_the_result_survives_a_file(tmp_path):
    steps: list[str] = []
    measured = calibrate(tmp_path, 10_000, **QUICK, on_step=steps.append)
    names = [(link.name, link.queue_depth) for link in measured.links]
    assert names == [
        ("disk-random", 1),
        ("disk-random", 2),
        ("disk-sequential", 1),
        ("disk-sequential", 2),
        ("page-cache", 1),
        ("memory", 1),
    ]
    assert {link.block_bytes for link in measured.links} == {12_288}
    assert all(link.block.samples >= MIN_SAMPLES for link in measured.links)
    assert measured.expert_bytes == 10_000
    assert measured.hardware["file_bytes"] == 2**20 // 12_288 * 12_288
    assert any("not the engine's own kernel" in note for note in measured.notes)
    assert len(steps) == 8
    assert list(tmp_path.iterdir()) == []
    save_calibration(measured, tmp_path / "machine.json")
    assert load_calibration(tmp_path / "machine.json") == measured


def test_given_measurements_of_the_accelerator_and_of_an_expert_are_taken(tmp_path):
    asked: list[int] = []

    def copy(num_bytes: int) -> float:
        asked.append(num_bytes)
        return num_bytes * 1e-9 + 1e-5

    measured = calibrate(
        tmp_path, 2**20, seconds=0.0, max_bytes=2**22, queue_depths=(1,), device_copy=copy,
        expert_matmul=lambda: 0.25, hardware={"accelerator": "one"},
    )  # fmt: skip
    link = measured.link("device")
    assert link.bandwidth_bytes_s() == pytest.approx(1e9)
    assert link.latency_s() == pytest.approx(1e-5)
    assert set(asked) == {2**20, 4096}
    assert measured.matmul is not None
    assert measured.matmul.p50 == 0.25
    assert measured.hardware["accelerator"] == "one"
    assert not any("kernel" in note for note in measured.notes)


def test_a_refused_direct_read_and_a_folder_in_memory_are_noted(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, flags, *rest, **more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(room, "file_system_of", lambda folder: "tmpfs")
    notes = calibrate(tmp_path, 10_000, **QUICK).notes
    assert "refuses O_DIRECT" in notes[0]
    assert "tmpfs, which is memory" in notes[1]


def test_reads_bring_the_bytes_of_their_offsets(tmp_path):
    with scratch_file(tmp_path, 8192, 2**20) as file:
        for descriptor in (file.buffered, file.direct):
            if descriptor is None:
                continue
            with Reader(descriptor, 8192, 2, forget=False) as reader:
                assert reader.seconds_a_read([8192, 16384, 24576, 32768]) > 0
                # each worker has its last block in its buffer
                for buffer, offset in zip(reader._buffers, (24576, 32768), strict=True):
                    assert buffer[:8192] == os.pread(file.buffered, 8192, offset)


def test_a_read_past_the_end_is_an_error_not_a_fast_read(tmp_path):
    with (
        scratch_file(tmp_path, 8192, 2**20) as file,
        Reader(file.buffered, 8192, 1, forget=False) as reader,
        pytest.raises(StorageError, match="gave less than was asked for"),
    ):
        reader.seconds_a_read([file.size - 4096])


def test_an_interrupt_during_a_measurement_leaves_nothing(tmp_path):
    def stop(step: str) -> None:
        if "sequential" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(tmp_path, 10_000, **QUICK, on_step=stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"expert_bytes": 0}, "calibrate.expert_bytes must be from 1 to"),
        ({"expert_bytes": 2**60}, "calibrate.expert_bytes"),
        ({"queue_depths": ()}, "calibrate.queue_depths must be one or more"),
        ({"queue_depths": (0,)}, "calibrate.queue_depths"),
        ({"queue_depths": (10_000,)}, "calibrate.queue_depths"),
        ({"seconds": float("nan")}, "calibrate.seconds"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_named(tmp_path, broken, words):
    with pytest.raises(SettingError, match=words):
        calibrate(tmp_path, **({"expert_bytes": 10_000} | QUICK | broken))


def test_samples_are_taken_until_there_are_enough_or_the_time_is_up():
    calls: list[int] = []

    def work() -> float:
        calls.append(1)
        return float(len(calls))

    assert spread_of(work, 0.0).samples == MIN_SAMPLES
    assert len(calls) == MIN_SAMPLES + 1  # the first warms up
    assert spread_of(work, 60.0).samples == MAX_SAMPLES
    assert spread_of(lambda: 0.0, 0.0).p20 > 0


@pytest.mark.parametrize("num_bytes", [1, 4096, 10_001])
def test_copies_and_products_take_time_at_any_size(num_bytes):
    assert memory_copy(num_bytes)(num_bytes) >= 0
    assert vector_products(num_bytes)() >= 0
    assert aligned(num_bytes) % 4096 == 0
    assert num_bytes <= aligned(num_bytes) < num_bytes + 4096
