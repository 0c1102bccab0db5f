"""Fixtures of the training tests: the tiny model and trainer, and processes that train it."""

import gc
import importlib.util
import multiprocessing
import runpy
import socket
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tiny.py")


def load(path):
    spec = importlib.util.spec_from_file_location(f"stickymoe_tests_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def step():
    return load(SCRIPT.with_name("step.py"))


@pytest.fixture(scope="session")
def free_port():
    """Return a port for ranks to meet at: `free_port()`."""

    def find():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return str(probe.getsockname()[1])

    return find


@pytest.fixture(scope="session")
def tiny():
    module = load(SCRIPT)
    gc.freeze()  # the Trainer collects garbage when it starts; what torch and transformers keep for good is none
    return module


@pytest.fixture
def one_thread():
    """Bit for bit equal results need equal numbers of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def forkserver():
    """A process that has imported everything once; training processes are forked from it in no time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stickymoe.training"])
    return context


class Child:
    """A training process and what it has printed."""

    def __init__(self, context, settings, environment, folder):
        self.folder = folder
        script = {"CHILD": (settings, environment, str(folder))}
        self.process = context.Process(target=runpy.run_path, args=(str(SCRIPT), script, "tiny_child"))
        self.process.start()
        self.pid = self.process.pid

    def wait(self, timeout=60):
        self.process.join(timeout)
        return self.process.exitcode

    def printed(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def wait_for(self, text, seconds=60):
        deadline = time.monotonic() + seconds
        while text not in self.printed("out") and self.process.is_alive():
            assert time.monotonic() < deadline, self.printed("err")
            time.sleep(0.005)


@pytest.fixture
def start(forkserver, tmp_path_factory):
    """Start a training process: `start(output_dir=..., resume=True, ...).wait()`. None is left running at the end."""
    started = []

    def start(environment=None, **settings):
        settings["output_dir"] = str(settings["output_dir"])
        started.append(Child(forkserver, settings, environment or {}, tmp_path_factory.mktemp("child")))
        return started[-1]

    yield start
    for child in started:
        child.process.kill()
        child.process.join()
