"""Speed of replay beside libCacheSim, and of curves, `diagnose`, import and streaming.

    python benchmarks/replay.py --trace code.npz --libcachesim-python ~/lcs/bin/python --json replay.json
    python benchmarks/replay.py --only import --jsonl-mb 200
    python benchmarks/replay.py --quick                 # does everything run? The numbers mean nothing

About fifteen minutes in all; the machine should be otherwise idle. Replay and curves run on one thread. Import and
stream read their memory from /proc, so they need Linux.

replay    LRU, in-cache LFU and Belady, one request at a time, one stream of requests a layer, one cache for the whole
          stream, on the trace and on 10**7 synthetic accesses. libCacheSim (GPL, so in a process of its own; left out
          where it is not installed) does the same requests with its reader in C, from files that tell it each next use
          and with only that loop on the clock, and with its Python loop, on every fourth stream. Contenders take turns,
          and their hits must be equal. Ours has everything on the clock, the search for next uses included. Floor: each
          access reads and writes its place of a table, as a cache would that never evicts.
curve     LRU at every capacity, against one capacity. Floor: the same.
diagnose  The command with its report: at first start, which compiles, and when kernels are on disk.
import    A JSONL in a process of its own. Floor: the file's bytes are read and its line ends counted.
stream    10**7 and 10**8 accesses written as Parquet in pieces, read and replayed in pieces, each in a process of its
          own: the peak of memory must not grow. Floor: the pieces are read and dropped.

Prints p20, p50, p80, the JSON last.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import synthetic_trace

from stickymoe.cache import hit_rate_curve, simulate
from stickymoe.core.compiled import compiled
from stickymoe.core.errors import StickyMoEError
from stickymoe.traces import RoutingTrace, TraceWriter, open_trace, read_trace, write_trace_as

POLICIES = {"lru": "LRU", "lfu-cache": "LFU", "belady": "Belady"}  # ours: libCacheSim's
READER, LOOP = "its file reader", "its Python loop"
LOOP_STREAMS = 4  # its Python loop runs one stream in so many
STREAM_SIZES = (10**7, 10**8)
RATE = "accesses_per_second"

# oracleGeneral: time, object (above 0), size, place of the next request of the same object (-1: none)
RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
LIBCACHESIM = """
import json, sys, time
from importlib.metadata import version
import libcachesim as lcs

print(json.dumps(version("libcachesim")), flush=True)
for line in sys.stdin:
    name, loop, capacity, files, requests = json.loads(line)
    seconds, hits = 0.0, []
    for file in files:
        reader = lcs.TraceReader(trace=file, trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE)
        cache = getattr(lcs, name)(cache_size=capacity, hashpower=12)
        if loop:
            hit, get = 0, cache.get
            begin = time.perf_counter()
            for request in reader:
                if get(request):
                    hit += 1
            seconds += time.perf_counter() - begin
        else:
            begin = time.perf_counter()
            missed, _ = cache.process_trace(reader)
            seconds += time.perf_counter() - begin
            hit = requests - round(missed * requests)
        hits.append(hit)
    print(json.dumps([seconds, hits]), flush=True)
"""


@compiled
def touch(ids: np.ndarray, seen: np.ndarray) -> int:
    """Return the accesses that found their expert used before."""
    hits = 0
    for token in range(ids.shape[0]):
        for layer in range(ids.shape[1]):
            for slot in range(ids.shape[2]):
                block = ids[token, layer, slot]
                hits += seen[layer, block]
                seen[layer, block] = 1
    return hits


class LibCacheSim:
    """A process that replays files of requests when told to."""

    def __init__(self, python: str) -> None:
        command = [python, "-c", LIBCACHESIM]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            sys.exit(f"{python} must be a Python interpreter that has libcachesim: {error.strerror}")
        self.version = str(self._read())

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("libcachesim ended without an answer; does this interpreter have it? --libcachesim-python PATH")
        return json.loads(line)

    def ask(self, name: str, loop: bool, capacity: int, files: list[str], requests: int) -> tuple[float, list[int]]:
        """Return the seconds of the loops over the requests, and each file's hits."""
        assert self.process.stdin is not None
        print(json.dumps([name, loop, capacity, files, requests]), file=self.process.stdin, flush=True)
        seconds, hits = self._read()
        return seconds, hits


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of one run, and what it returned."""
    begin = time.perf_counter()
    found = work()
    return time.perf_counter() - begin, found


def row_of(seconds: list[float], amount: float, unit: str) -> dict[str, Any]:
    """Return p20, p50 and p80 in milliseconds, and the rate at the median."""
    ordered = sorted(seconds)
    row = {f"p{p}_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (20, 50, 80)}
    return row | {unit: amount / row["p50_ms"] * 1e3}


def target(what: str, found: float, *, least: float | None = None, most: float | None = None) -> dict[str, Any]:
    """Return a number beside what it should reach."""
    met = found >= least if least is not None else most is not None and found <= most
    bound = f">= {least:g}" if least is not None else f"<= {most:g}"
    return {"what": what, "found": found, "to_reach": bound, "met": bool(met)}


def requests_files(trace: RoutingTrace, folder: Path) -> list[str]:
    """Write one file of requests a layer and return their names."""
    files = []
    for layer in range(trace.num_layers):
        stream = trace.expert_ids[:, layer].reshape(-1).astype(np.int64)
        records = np.zeros(stream.size, dtype=RECORD)
        records["time"], records["object"], records["size"], records["next"] = np.arange(stream.size), stream + 1, 1, -1
        order = np.argsort(stream, kind="stable")
        again = stream[order[:-1]] == stream[order[1:]]
        records["next"][order[:-1][again]] = order[1:][again]
        files.append(str(folder / f"{layer}.bin"))
        records.tofile(files[-1])
    return files


def floor(trace: RoutingTrace) -> float:
    """Return the seconds in which each access is touched once."""
    seen = np.zeros((trace.num_layers, trace.num_experts), dtype=np.int64)
    return timed(lambda: touch(trace.expert_ids, seen))[0]


def replay(name: str, trace: RoutingTrace, options: argparse.Namespace) -> dict[str, Any]:
    """Time one capacity of each policy, ours and theirs by turns."""
    accesses = trace.expert_ids.size
    if not trace.expert_ids.min() >= 0:
        sys.exit(f"{name} must fill every slot to be compared with libcachesim")
    rows, targets, floors = [], [], [floor(trace)]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.libcachesim:
            require_space(options.folder, accesses * RECORD.itemsize)
        files = requests_files(trace, Path(folder)) if options.libcachesim else []
        for policy in POLICIES:
            turns = []
            for turn in range(options.rounds + 1):  # the first to warm up
                say(f"replay {name} {policy}: turn {turn} of {options.rounds}")
                floors.append(floor(trace))
                turns.append(replay_by_turns(policy, trace, files, options))
            streams = {way: len(files[::LOOP_STREAMS]) if way == LOOP else trace.num_layers for way in turns[0]}
            mine = {
                way: row_of([turn[way] for turn in turns[1:]], accesses / trace.num_layers * each, RATE)
                for way, each in streams.items()
            }
            rows += [{"policy": policy, "contender": way, "streams": streams[way], **row} for way, row in mine.items()]
            for way, least in ((READER, 3.0), (LOOP, 20.0)):
                if way in mine:
                    ratio = mine["ours"][RATE] / mine[way][RATE]
                    targets.append(target(f"{name}: {policy}, rate over {way}", ratio, least=least))
    rows.append({"contender": "floor", **row_of(floors[1:], accesses, RATE)})
    facts = {"tokens": trace.num_tokens, "layers": trace.num_layers, "top_k": trace.top_k, "accesses": accesses}
    return {"trace": name, **facts, "capacity": options.capacity, "rows": rows, "targets": targets}


def replay_by_turns(
    policy: str, trace: RoutingTrace, files: list[str], options: argparse.Namespace
) -> dict[str, float]:
    """Return each contender's seconds; all must find the same hits in the same stream."""
    atomic, _ = timed(lambda: simulate(trace, policy, options.capacity, reset="never"))
    ours, report = timed(lambda: simulate(trace, policy, options.capacity, replay="sequential", reset="never"))
    found = {"ours": ours, "ours, a token at once": atomic}
    hits = report.hits_per_layer.tolist()
    requests = trace.num_tokens * trace.top_k
    for way, every in ((READER, 1), (LOOP, LOOP_STREAMS)) if files else ():
        asked = (POLICIES[policy], way == LOOP, options.capacity, files[::every], requests)
        found[way], theirs = options.libcachesim.ask(*asked)
        if theirs != hits[::every]:
            sys.exit(f"{policy}, {way}: {sum(theirs)} hits where ours are {sum(hits[::every])}")
    return found


def curve(name: str, trace: RoutingTrace, options: argparse.Namespace) -> dict[str, Any]:
    """Time LRU at all capacities against one, by turns, and hold the curve to that one."""
    sizes = list(range(1, max(trace.num_experts, options.capacity) + 1))
    one, every, floors = [], [], [floor(trace)]
    for turn in range(options.rounds + 1):
        say(f"curve: turn {turn} of {options.rounds}")
        floors.append(floor(trace))
        second, report = timed(lambda: simulate(trace, "lru", options.capacity))
        one.append(second)
        second, reports = timed(lambda: hit_rate_curve(trace, "lru", sizes))
        every.append(second)
        if reports[sizes.index(options.capacity)].hits != report.hits:
            sys.exit("the curve and the replay of one capacity must count alike")
    accesses = trace.expert_ids.size
    rows = [
        {"contender": "one capacity", **row_of(one[1:], accesses, RATE)},
        {"contender": f"all {len(sizes)} capacities", **row_of(every[1:], accesses, RATE)},
        {"contender": "floor", **row_of(floors[2:], accesses, RATE)},
    ]
    ratio = rows[1]["p50_ms"] / rows[0]["p50_ms"]
    return {"trace": name, "rows": rows, "targets": [target("LRU curve, time over one capacity", ratio, most=3.0)]}


def diagnose(name: str, trace: RoutingTrace, options: argparse.Namespace) -> dict[str, Any]:
    """Time the command, at first with no compiled kernels on disk."""
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        folder = Path(made)
        if options.trace:
            file = options.trace
        else:
            file = folder / "synthetic.npz"
            write_trace_as(trace, file, "npz")
        out = folder / "report.html"
        command = [sys.executable, "-m", "stickymoe", "diagnose", str(file), "--out", str(out)]
        seconds = []
        for turn in range(options.few + 1):
            say(f"diagnose: run {turn} of {options.few}")
            second, done = timed(
                lambda: subprocess.run(
                    command, env=os.environ | {"NUMBA_CACHE_DIR": str(folder)}, capture_output=True, text=True
                )
            )
            if done.returncode or not out.stat().st_size:
                sys.exit(f"diagnose failed: {done.stderr.strip()[-300:]}")
            seconds.append(second)
        size = out.stat().st_size
    row = row_of(seconds[1:], trace.expert_ids.size, RATE)
    rows = [{"contender": "kernels on disk", **row}, {"contender": "first start", "p50_ms": 1e3 * seconds[0]}]
    goal = target("diagnose with report, seconds", row["p50_ms"] / 1e3, most=15.0)
    return {"trace": name, "rows": rows, "report_bytes": size, "targets": [goal]}


def importing(options: argparse.Namespace) -> dict[str, Any]:
    """Time the import of a JSONL that the script writes."""
    size = options.jsonl_mb * 10**6
    require_space(options.folder, size * 1.1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        file = Path(folder) / "trace.jsonl"
        say(f"import: writing {options.jsonl_mb} MB")
        tokens = synthetic_trace.write_jsonl(file, size)
        size = file.stat().st_size
        floors, runs = [], []
        for turn in range(options.few + 1):
            say(f"import: run {turn} of {options.few}")
            floors.append(timed(lambda: count_lines(file))[0])
            runs.append(child("import", str(file)))
    if any(run["tokens"] != tokens for run in runs):
        sys.exit(f"the import must find {tokens} tokens, found {runs[0]['tokens']}")
    peak = max(run["peak_mib"] for run in runs)
    row = row_of([run["seconds"] for run in runs[1:]], size / 1e6, "mb_per_second")
    rows = [
        {"contender": "read_trace", **row, "peak_mib": peak, "start_mib": runs[0]["start_mib"]},
        {"contender": "floor", **row_of(floors[1:], size / 1e6, "mb_per_second")},
    ]
    goals = [target("import, MB/s", row["mb_per_second"], least=60.0), target("import, peak MiB", peak, most=1024.0)]
    accesses = tokens * synthetic_trace.ACCESSES_A_TOKEN
    return {"bytes": size, "tokens": tokens, "accesses": accesses, "rows": rows, "targets": goals}


def stream(options: argparse.Namespace) -> dict[str, Any]:
    """Write, read and replay traces of two sizes in pieces, and compare the peaks of memory."""
    rows, peaks = [], []
    require_space(options.folder, options.stream[-1] * 2)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for accesses in options.stream:
            file = Path(folder) / f"{accesses}.parquet"
            tokens = -(-accesses // synthetic_trace.ACCESSES_A_TOKEN)
            accesses = tokens * synthetic_trace.ACCESSES_A_TOKEN
            say(f"stream: writing {accesses} accesses")
            writing = child("write", str(file), str(tokens))
            facts = {"accesses": accesses, "file_bytes": file.stat().st_size}
            rows.append({"contender": "write (made meanwhile)", **facts, **measured([writing], accesses)})
            runs: dict[str, list[dict[str, Any]]] = {"read": [], "simulate": []}
            for turn in range(options.few + 1):
                say(f"stream: run {turn} of {options.few}")
                for way, found in runs.items():
                    found.append(child(way, str(file), str(options.capacity)))
                    if found[-1]["accesses"] != accesses:
                        sys.exit(f"{way} must find {accesses} accesses, found {found[-1]['accesses']}")
            for way, label in (("simulate", "read and replay, LRU"), ("read", "floor: read")):
                rows.append({"contender": label, **facts, **measured(runs[way][1:], accesses)})
            peaks.append(rows[-2]["peak_mib"])
            file.unlink()
    growth = peaks[-1] / peaks[0]
    return {"rows": rows, "targets": [target("stream, peak memory of ten times the accesses", growth, most=1.1)]}


def measured(runs: list[dict[str, Any]], accesses: int) -> dict[str, Any]:
    """Return time and peak memory of a child's runs."""
    memory = {"peak_mib": max(run["peak_mib"] for run in runs), "start_mib": runs[0]["start_mib"]}
    return row_of([run["seconds"] for run in runs], accesses, RATE) | memory


def count_lines(file: Path) -> int:
    """Return the line ends of a file."""
    with file.open("rb") as opened:
        return sum(block.count(b"\n") for block in iter(lambda: opened.read(2**23), b""))


def require_space(folder: Path, needed: float) -> None:
    """End where the disk has no room."""
    free = shutil.disk_usage(folder).free
    if free < needed + 2**30:
        sys.exit(f"{folder} must have {needed / 1e9 + 1.1:.1f} GB free, has {free / 1e9:.1f} GB; --folder elsewhere")


def child(*words: str) -> dict[str, Any]:
    """Return what `serve` tells in a process of its own, threads as they come."""
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, __file__, "--child", *words]
    done = subprocess.run(command, env=free, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{words[0]} failed: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def serve(way: str, file: str, *more: str) -> None:
    """Do one piece of work and print its time and memory; the other half of `child`."""
    simulate(synthetic_trace.whole(2), "lru", 1)  # what every process pays once
    start = peak_mib()
    begin = time.perf_counter()
    found = {}
    if way == "import":
        trace = read_trace(file)
        assert isinstance(trace, RoutingTrace)
        found["tokens"] = trace.num_tokens
    elif way == "write":
        with TraceWriter(file) as writer:
            for piece in synthetic_trace.pieces(int(more[0])):
                writer.write(piece)
    else:
        with open_trace(file) as reader:
            if way == "read":
                found["accesses"] = sum(piece.expert_ids.size for piece in reader.batches())
            else:
                report = simulate(reader.batches(), "lru", int(more[0]))
                found["accesses"] = report.hits + report.misses
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "start_mib": start, "peak_mib": peak_mib(), **found}))


def peak_mib() -> int:
    """Return the most memory that this process ever had; what getrusage tells begins at its parent's."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def libcachesim(python: str | None) -> LibCacheSim | None:
    """Start libCacheSim where there is one."""
    if python is None and importlib.util.find_spec("libcachesim") is None:
        say("libcachesim is not installed here, so it is left out; --libcachesim-python PATH names one that has it")
        return None
    return LibCacheSim(python or sys.executable)


def parsed() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, of {','.join(SECTIONS)} (all)")
    parser.add_argument("--trace", type=Path, help="a trace of any format, every slot filled (a synthetic one)")
    parser.add_argument("--libcachesim-python", help="an interpreter that has libcachesim 0.3 (this one)")
    parser.add_argument("--capacity", type=int, default=32, help="slots a layer (32)")
    parser.add_argument("--rounds", type=int, default=7, help="counted turns of replay and curve; others take 3 (7)")
    parser.add_argument("--jsonl-mb", type=int, default=1000, help="size of the JSONL to import (1000)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for temporary files")
    parser.add_argument("--quick", action="store_true", help="small sizes, one turn: only to see that all runs")
    parser.add_argument("--json", type=Path, help="also write the result here")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := sorted(set(options.only) - set(SECTIONS)):
        parser.error(f"--only takes {', '.join(SECTIONS)}, got {', '.join(unknown)}")
    if min(options.rounds, options.jsonl_mb, options.capacity) < 1:
        parser.error("--rounds, --jsonl-mb and --capacity must be at least 1")
    options.few, options.synthetic, options.stream = min(3, options.rounds), 10**7, STREAM_SIZES
    options.tokens = 8000
    if options.quick:
        options.few = options.rounds = 1
        options.jsonl_mb = min(options.jsonl_mb, 5)
        options.tokens, options.synthetic, options.stream = 512, 10**5, (10**5, 10**6)
    return options


def traced(options: argparse.Namespace) -> tuple[str, RoutingTrace]:
    """Return the trace to work on, and its name."""
    if not options.trace:
        return "synthetic", synthetic_trace.whole(options.tokens)
    try:
        trace = read_trace(options.trace)
    except StickyMoEError as error:
        sys.exit(str(error))
    if not isinstance(trace, RoutingTrace):
        sys.exit(f"{options.trace} must be a trace, is a profile of counts without order")
    return options.trace.name, trace


# Section -> whether it works on the trace
SECTIONS = {"replay": True, "curve": True, "diagnose": True, "import": False, "stream": False}


def main() -> None:
    """Measure, print tables and the JSON."""
    options = parsed()
    if options.child:
        serve(*options.child)
        return
    result: dict[str, Any] = {"what": "replay, curve, diagnose, import and stream", "quick": options.quick}
    found: list[dict[str, Any]] = []
    if any(SECTIONS[name] for name in options.only):
        name, trace = traced(options)
    if "replay" in options.only:
        options.libcachesim = libcachesim(options.libcachesim_python)
        result["libcachesim"] = options.libcachesim.version if options.libcachesim else "left out"
        found.append({"section": "replay", **replay(name, trace, options)})
        large = synthetic_trace.whole(-(-options.synthetic // synthetic_trace.ACCESSES_A_TOKEN), seed=1)
        title = f"synthetic, {large.expert_ids.size / 1e6:.3g} M accesses"
        found.append({"section": "replay", **replay(title, large, options)})
        if options.libcachesim:
            options.libcachesim.process.communicate()
    if "curve" in options.only:
        found.append({"section": "curve", **curve(name, trace, options)})
    if "diagnose" in options.only:
        found.append({"section": "diagnose", **diagnose(name, trace, options)})
    if "import" in options.only:
        found.append({"section": "import", **importing(options)})
    if "stream" in options.only:
        found.append({"section": "stream", **stream(options)})
    from closing import close, made_with  # brings torch

    result |= {"sections": found, "rounds": {"replay, curve": options.rounds, "others": options.few}}
    result |= made_with()
    result["versions"] |= {each: version(each) for each in ("numba", "numpy", "pyarrow")}
    report(result)
    close(result, options.json)


def report(result: dict[str, Any]) -> None:
    """Print the result for people."""
    print(result["what"] + ", small sizes: no measurement" * result["quick"])
    for section in result["sections"]:
        print(f"\n{section['section']}  {section.get('trace', '')}")
        print(f"{'':38}{'p20':>9}{'p50':>9}{'p80':>9} ms{'rate':>16}{'peak':>7} MiB")
        for row in section["rows"]:
            label = " ".join(str(row[key]) for key in ("policy", "contender") if row.get(key))
            if "accesses" in row:
                label += f", {row['accesses']:.0e}"
            times = "".join(f"{row[key]:9.0f}" if key in row else " " * 9 for key in ("p20_ms", "p50_ms", "p80_ms"))
            rate = ""
            if RATE in row:
                rate = f"{row['accesses_per_second'] / 1e6:.3g} M/s"
            elif "mb_per_second" in row:
                rate = f"{row['mb_per_second']:.0f} MB/s"
            print(f"{label:38}{times}   {rate:>16}{row.get('peak_mib', ''):>7}")
    print()
    if result["quick"]:
        return
    for goal in (goal for section in result["sections"] for goal in section["targets"]):
        word = "met" if goal["met"] else "MISSED"
        print(f"{goal['what']:60}{goal['found']:10.2f}  to reach {goal['to_reach']:8} {word}")


if __name__ == "__main__":
    main()
