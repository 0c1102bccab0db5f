"""The allocator setting is taken on glibc and harmless elsewhere."""

import subprocess
import sys
from functools import partial
from importlib import import_module

from stickymoe.training import StickyTrainer, evaluate
from stickymoe.training.memory import keep_freed_memory

# A block of 64 MiB, freed: the process keeps it only if the allocator was told so. Resident pages count.
SCRIPT = """
import ctypes
from stickymoe.training.memory import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def resident_after_a_freed_block(size=64 * 2**20):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)
    return int(open("/proc/self/statm").read().split()[1]) * 4096
returned = resident_after_a_freed_block()
assert keep_freed_memory()
print(resident_after_a_freed_block() - returned)
"""


def test_a_freed_block_stays_in_the_process_on_glibc():
    if not sys.platform.startswith("linux"):
        assert not keep_freed_memory()
        return
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50 * 2**20


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr("stickymoe.training.memory.sys.platform", "darwin")
    assert keep_freed_memory() is False


def test_training_and_evaluation_ask_for_it_on_the_cpu(tiny, tmp_path, monkeypatch):
    asked = []
    for room in ("reliable", "evaluate"):
        module = import_module(f"stickymoe.training.{room}")
        monkeypatch.setattr(module, "keep_freed_memory", partial(asked.append, room))
    StickyTrainer(tiny.model(), tiny.arguments(tmp_path), tiny.chunks()).train()
    assert asked == ["reliable"]
    evaluate(tiny.model(), tiny.chunks(keep_tail=True), batch_size=2)
    assert asked == ["reliable", "evaluate"]
