"""Processes of this machine: on a leash, with their share of the cores and GPUs."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stickymoe.core.errors import SettingError, StorageError
from stickymoe.experiments.environment import usable_cores
from stickymoe.experiments.launchers import local
from stickymoe.experiments.launchers.launcher import STOP_FILE
from stickymoe.experiments.launchers.local import LocalLauncher, LocalProcess, run_to_end
from stickymoe.experiments.launchers.registry import open_launcher

ANSWERS = """
import os, signal, time
def end(number, frame):
    time.sleep(0.2); os.write(1, f"ended by {number}".encode()); os._exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", os.getpid(), flush=True)
time.sleep(60)
"""
DEAF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.getpid(), flush=True)
time.sleep(60)
"""


def output(folder):
    path = folder / "output.txt"
    return path.read_text() if path.exists() else ""


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


PARENT = """
import sys, time
from pathlib import Path
from stickymoe.experiments.launchers.launcher import STOP_FILE
from stickymoe.experiments.launchers.local import LocalProcess
process = LocalProcess(Path(sys.argv[1]), ["-c", sys.argv[2]], {})
time.sleep(60)
"""


@pytest.mark.parametrize(("code", "grace", "said"), [(ANSWERS, 60, "ended by 15"), (DEAF, 0.3, "ready")])
def test_a_run_does_not_outlive_a_parent_that_is_killed_outright(tmp_path, code, grace, said):
    patience = f"import sys; sys.modules['__main__'].GRACE_SECONDS = {grace}\n"  # there the main module is the leash
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), patience + code])
    try:
        wait_until(lambda: "ready" in output(tmp_path) and output(tmp_path).endswith("\n"))
        pid = int(output(tmp_path).split()[1])
        assert is_alive(pid)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_alive(pid), seconds=20)
    assert output(tmp_path).splitlines()[-1].startswith(said)


def test_a_run_that_ends_by_itself_is_not_bothered(tmp_path):
    process = LocalProcess(tmp_path, ["-c", "import sys; print(sys.argv); raise SystemExit(7)", "one", "two"], {})
    assert process.wait(60) == 7
    assert process.returncode == 7
    assert output(tmp_path) == "['-c', 'one', 'two']\n"
    process.kill()  # does nothing


def test_a_module_is_run_as_python_would(tmp_path):
    process = LocalProcess(tmp_path, ["-m", "stickymoe", "--version"], {})
    assert process.wait(60) == 0
    assert output(tmp_path).startswith("stickymoe, version")


def test_what_is_no_command_is_told(tmp_path):
    assert LocalProcess(tmp_path, ["train", "x"], {}).wait(60) == 1
    assert "a command must begin with -m or -c, got 'train'" in output(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_error_and_leaves_no_pipe_open(tmp_path):
    (tmp_path / "file").touch()
    before = open_descriptors()
    with pytest.raises(NotADirectoryError):
        LocalProcess(tmp_path / "file" / "run", ["-c", ""], {})
    assert open_descriptors() == before


def test_a_full_disk_is_one_error(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local.Path, "open", refused)
    with pytest.raises(StorageError, match="no space left"):
        LocalProcess(tmp_path, ["-c", ""], {})


@pytest.mark.parametrize("how", ["ctrl-c", "stop file"])
def test_a_run_elsewhere_is_asked_to_end_by_ctrl_c_and_by_a_file(tmp_path, how):
    code = ANSWERS.replace("SIGTERM", "SIGINT").replace("os._exit(0)", "os._exit(130)")

    def interrupt():
        wait_until(lambda: "ready" in output(tmp_path))
        os.kill(os.getpid(), signal.SIGINT) if how == "ctrl-c" else (tmp_path / STOP_FILE).touch()

    threading.Thread(target=interrupt, daemon=True).start()
    assert run_to_end(tmp_path, ["-c", code], {}) == 130
    assert "ended by 2" in output(tmp_path)


SHOW = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ['OMP_NUM_THREADS'])"


@pytest.mark.parametrize(("visible", "shown"), [("4,7", ["4", "7", "4"]), ("3", ["3", "3", "3"]), ("", ["", "", ""])])
def test_runs_take_turns_on_the_gpus_and_share_the_cores(tmp_path, monkeypatch, visible, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    launcher = LocalLauncher()
    assert launcher.slots() == usable_cores()
    for number, gpu in enumerate(shown):
        assert launcher.start(tmp_path / str(number), ["-c", SHOW], 1).wait(60) == 0
        assert output(tmp_path / str(number)) == f"{gpu} {usable_cores()}\n"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("slum", [], "--launcher must be one of local, ray, slurm, got 'slum'; did you mean 'slurm'?"),
        ("local", ["a=1"], "--cluster must be left out with --launcher local, got 'a'"),
        ("ray", ["adress"], "--cluster must be of the form KEY=VALUE, got 'adress'"),
    ],
)
def test_a_launcher_or_option_that_is_none_is_refused(tmp_path, name, options, said):
    with pytest.raises(SettingError) as caught:
        open_launcher(name, tmp_path, options)
    assert said in str(caught.value)


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingError, match=r"which is not installed; pip install 'stickymoe\[cluster\]'"):
        open_launcher(name, tmp_path)
