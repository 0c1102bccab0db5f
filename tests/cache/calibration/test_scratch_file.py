"""The scratch file: random, whole, and gone whatever happens."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stickymoe.cache.calibration import scratch_file as room
from stickymoe.cache.calibration.scratch_file import file_system_of, scratch_file
from stickymoe.core.errors import StorageError

BLOCK = 2**16


def test_it_holds_random_bytes_and_has_no_name(tmp_path):
    with scratch_file(tmp_path, BLOCK, 10 * BLOCK + 5) as file:
        assert list(tmp_path.iterdir()) == []
        assert file.size == 10 * BLOCK == os.fstat(file.buffered).st_size
        content = os.pread(file.buffered, file.size, 0)
        assert len(set(content)) == 256
        assert content[:BLOCK] != content[BLOCK : 2 * BLOCK]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.buffered)


def test_a_refused_direct_read_leaves_the_buffered_one(tmp_path, monkeypatch):
    real = os.open

    def refusing(path, flags, *rest, **more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refusing)
    with scratch_file(tmp_path, BLOCK, 4 * BLOCK) as file:
        assert file.direct is None
        assert len(os.pread(file.buffered, BLOCK, 0)) == BLOCK


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with (
        pytest.raises(StorageError, match=r"could not write .*no space left on device; .*left no file behind"),
        scratch_file(tmp_path, BLOCK, 4 * BLOCK),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_quarter_of_the_free_space_is_the_most(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: usage._replace(free=20 * BLOCK))
    with scratch_file(tmp_path, BLOCK, 2**30) as file:
        assert file.size == 5 * BLOCK
    monkeypatch.setattr(room.shutil, "disk_usage", lambda folder: usage._replace(free=15 * BLOCK))
    with (
        pytest.raises(StorageError, match=f"a file of {4 * BLOCK} bytes must fit in .* quarter of the {15 * BLOCK}"),
        scratch_file(tmp_path, BLOCK, 2**30),
    ):
        pass


def test_a_missing_folder_and_a_file_for_a_folder_are_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    for place in ("none", "file"):
        with (
            pytest.raises(StorageError, match="could not measure in"),
            scratch_file(tmp_path / place, BLOCK, 4 * BLOCK),
        ):
            pass


@pytest.mark.parametrize("stop", ["KeyboardInterrupt", "kill"])
def test_nothing_is_left_after_an_interrupt_or_a_kill(tmp_path, stop):
    end = "raise KeyboardInterrupt" if stop == "KeyboardInterrupt" else "os.kill(os.getpid(), 9)"
    script = (
        "import os, pathlib\n"
        "from stickymoe.cache.calibration.scratch_file import scratch_file\n"
        f"with scratch_file(pathlib.Path({str(tmp_path)!r}), 65536, 10 * 65536) as file:\n"
        f"    {end}\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert ("KeyboardInterrupt" in done.stderr) == (stop == "KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="no list of mounts here")
def test_file_systems_are_told_apart():
    assert file_system_of(Path("/proc")) == "proc"
    assert file_system_of(Path("/proc/self")) == "proc"
    assert file_system_of(Path.cwd()) not in ("unknown", "proc")
