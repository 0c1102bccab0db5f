"""Count one trace as several tools do, for docs/cache-semantics.md: between its markers stands what this prints.

    python benchmarks/cache_semantics.py                   # rewrite the page from the committed result
    python benchmarks/cache_semantics.py --check           # fail if the page differs
    python benchmarks/cache_semantics.py --measure TRACES  # replay the public traces first

Every number is that of a command which the page shows: the command line itself is run. TRACES holds the public traces,
and PUBLISHED (--published) what their authors published.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from marked_blocks import filled

from stickymoe.cli import main as command_line
from stickymoe.core.files import sha256_of, write_json
from stickymoe.experiments.environment import commit, versions
from stickymoe.experiments.formatting import percent
from stickymoe.traces import RoutingTrace, read_trace

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "cache_semantics.json"
PAGE = ROOT / "docs" / "cache-semantics.md"

# The page's names for the files: where they lie among the public traces, and where they come from.
FILES = {
    "code.npz": ("qwen3-30b-a3b/code.npz", "Shriniwas410/cacheable-by-design, routing-lab/traces/code.npz", "MIT"),
    "qwen.route.csv": ("bigmoeonedge/qwen.route.csv", "Helldez/BigMoeOnEdge", "Apache-2.0"),
    "a-main-s1.npz": (
        "cacheable-by-design/a-main-s1/trace_prose.npz",
        "Shriniwas410/cacheable-by-design, runs/a-main-s1/trace_prose.npz",
        "MIT",
    ),
    "b-main-s1.npz": (
        "cacheable-by-design/b-main-s1/trace_prose.npz",
        "Shriniwas410/cacheable-by-design, runs/b-main-s1/trace_prose.npz",
        "MIT",
    ),
}
PREPARE = """\
from stickymoe.traces import read_trace

read_trace("code.npz", chunk_tokens=512).head(2000).save("code-2000.parquet")
read_trace("qwen.route.csv").select(phase="decode").save("qwen-decode.parquet")
"""
CODE, QWEN, DECODE = "code-2000.parquet", "qwen.route.csv", "qwen-decode.parquet"
ENGINE = "--scope model --prefill pass --count unique --reset never --admission whole"


@dataclass(frozen=True)
class Way:
    """How somebody counts: whose way, in words, and as arguments of `stickymoe simulate`."""

    whose: str
    words: str
    file: str
    options: str
    policies: tuple[str, ...] = ("lru", "belady")

    @property
    def command(self) -> str:
        """The command, as one would type it."""
        chosen = " ".join(f"--policy {policy}" for policy in self.policies)
        return f"stickymoe simulate {self.file} {chosen} {self.options}"


CODE_WAYS = (
    Way("this tool's defaults", "32 slots a layer", CODE, "--capacity 32"),
    Way(
        "the StickyMoE paper", "top-1 alone, 2 slots a layer", CODE, "--capacity 2 --accesses top1 --replay sequential"
    ),
    Way("BigMoeOnEdge", "one pool, a token at once", CODE, f"--capacity 25% {ENGINE.replace('--prefill pass ', '')}"),
    Way("onnx-genai", "one pool, a token at once", CODE, "--capacity 25% --scope model --reset never"),
    Way("libCacheSim", "one by one, a cache a layer", CODE, "--capacity 32 --replay sequential --reset never"),
    Way("cacheable-by-design", "one by one, a cache a layer", CODE, "--capacity 32 --replay sequential --reset never"),
)
QWEN_WAYS = (
    Way("BigMoeOnEdge", "one pool, unique in a pass", QWEN, f"--capacity 4000MiB {ENGINE}"),
    Way("this tool's defaults", "a cache a layer", QWEN, "--capacity 4000MiB"),
    Way("onnx-genai", "decode alone, cold, one pool", DECODE, "--capacity 4000MiB --scope model"),
    Way("libCacheSim", "one pool, one by one", QWEN, "--capacity 4000MiB --scope model --replay sequential"),
    Way("cacheable-by-design", "a cache a layer, one by one", QWEN, "--capacity 4000MiB --replay sequential"),
    Way("the StickyMoE paper", "top-1, 2 slots a layer", QWEN, "--capacity 2 --accesses top1 --replay sequential"),
)
SMALL_WAYS = tuple(
    Way(name, "4 of 16 slots a layer", f"{name}.npz", "--capacity 4 --replay sequential --reset never")
    for name in ("a-main-s1", "b-main-s1")
)
# What changes, the option, what it means, and both ways of counting.
CHOICES = (
    ("Which experts of a token", "`--accesses`", ("all", "--capacity 32"), ("top-1", "--capacity 32 --accesses top1")),
    ("Size", "`--capacity`", ("32 slots", "--capacity 32"), ("8 slots", "--capacity 8")),
    (
        "Where slots may go",
        "`--scope`",
        ("a cache a layer", "--capacity 25%"),
        ("one pool", "--capacity 25% --scope model"),
    ),
    (
        "A token's experts, 8 slots",
        "`--replay`",
        ("at once", "--capacity 8"),
        ("one by one", "--capacity 8 --replay sequential"),
    ),
    (
        "A new sequence",
        "`--reset`",
        ("cold", "--capacity 32"),
        ("warm", "--capacity 32 --reset never"),
    ),
)
ENGINE_CHOICES = (
    ("A prompt's tokens", "`--prefill`", ("a pass at once", ENGINE), ("one by one", ENGINE.replace("pass", "token"))),
    (
        "An expert wanted twice in an event",
        "`--count`",
        ("one lookup", ENGINE),
        ("a lookup each", ENGINE.replace("unique", "assignments")),
    ),
)
LFU = Way("", "", CODE, "--capacity 32 --replay sequential --reset never", ("lfu", "lfu-cache"))
BYPASS = Way("", "", CODE, "--capacity 8", ("belady", "belady-bypass"))


def choice_ways() -> list[Way]:
    """Return every way of counting that the table of choices compares."""
    ways = [Way("", "", CODE, options) for *_, one, other in CHOICES for _, options in (one, other)]
    sized = [f"--capacity 4000MiB {options}" for *_, one, other in ENGINE_CHOICES for _, options in (one, other)]
    return [*ways, *(Way("", "", QWEN, options) for options in sized), LFU, BYPASS]


def replayed(command: str) -> dict[str, Any]:
    """Run a command and return what it counted, by policy."""
    done = CliRunner().invoke(command_line, [*command.split()[1:], "--json"])
    if done.exit_code:
        sys.exit(f"{command}: {done.output}")
    kept = ("hit_rate", "lookups", "hits", "misses", "compulsory", "phases", "description")
    found = json.loads(done.stdout)
    return {each["semantics"]["policy"]: {key: each[key] for key in kept if key in each} for each in found}


def blind_belady_misses(ids: np.ndarray, slots: int) -> int:
    """Replay one layer with the rule published as "belady": only uses by later tokens count as next uses.

    Ties go to whichever comes first in a Python set, as there.
    """
    never = len(ids)
    following = np.full((never + 1, int(ids.max()) + 1), never)
    for token in range(never - 1, -1, -1):
        following[token] = following[token + 1]
        following[token, ids[token]] = token
    rows, resident, misses = following.tolist(), set[int](), 0
    for token, wanted in enumerate(ids.tolist()):
        for expert in wanted:
            if expert in resident:
                continue
            misses += 1
            if len(resident) >= slots:
                resident.discard(max(resident, key=rows[token + 1].__getitem__))
            resident.add(expert)
    return misses


def measured(traces: Path, published: Path) -> dict[str, Any]:
    """Replay everything that the page shows."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for file, (place, _, _) in FILES.items():
            Path(file).symlink_to((traces / place).resolve())
        subprocess.run([sys.executable, "-c", PREPARE], check=True)
        ways = [*CODE_WAYS, *QWEN_WAYS, *SMALL_WAYS, *choice_ways()]
        runs = {command: replayed(command) for command in dict.fromkeys(way.command for way in ways)}
        rule = {name: _blind(Path(f"{name}.npz"), 4) for name in ("a-main-s1", "b-main-s1")}
        rule["code-2000"] = _blind(Path(CODE), 32)
        decode = _trace(Path(DECODE)).resident
        if decode is None:
            sys.exit(f"{QWEN} does not say what was resident")
        device = {"hits": int(np.sum(decode == 1)), "misses": int(np.sum(decode == 0))}
        hashes = {file: sha256_of(Path(file)) for file in FILES}
    told = json.loads(published.read_text(encoding="utf-8"))
    small = told["cacheable-by-design"]["published"]
    return {
        "what": "one trace, counted in the ways of several tools",
        "traces": {
            file: {"place": place, "from": origin, "licence": licence, "sha256": hashes[file]}
            for file, (place, origin, licence) in FILES.items()
        },
        "published": {
            "device_percent": told["bigmoeonedge"]["qwen"]["device_measured_cumulative_hit_pct"],
            "misses_a_token": {way.whose: small[way.whose]["prose"]["miss"]["0.25"] for way in SMALL_WAYS},
        },
        "device_decode": device,
        "blind_belady": rule,
        "runs": runs,
        "commit": commit(),
        "versions": {**versions(), **{name: version(name) for name in ("numpy", "numba")}},
    }


def _trace(path: Path) -> RoutingTrace:
    found = read_trace(path)
    assert isinstance(found, RoutingTrace)
    return found


def _blind(path: Path, slots: int) -> dict[str, int]:
    trace = _trace(path)
    misses = sum(blind_belady_misses(trace.expert_ids[:, layer], slots) for layer in range(trace.num_layers))
    return {"misses": misses, "tokens": trace.num_tokens, "lookups": int(trace.expert_ids.size)}


def _rate(hits: int, misses: int) -> str:
    return percent(hits / (hits + misses), 2)


def _of(run: dict[str, Any]) -> str:
    return percent(run["hit_rate"], 2)


def _decode(run: dict[str, Any]) -> str:
    return _rate(**run["phases"]["decode"])


def choices_block(found: dict[str, Any]) -> str:
    """Return what each choice alone does to the number."""
    runs = found["runs"]
    rows = [
        (what, option, *((name, _of(runs[Way("", "", CODE, words).command]["lru"])) for name, words in pair))
        for what, option, *pair in CHOICES
    ]
    base = runs[Way("", "", CODE, "--capacity 32").command]["lru"]
    warm = base["lookups"] - base["compulsory"]
    rows.append(
        ("First uses", "column `first uses`", ("are misses", _of(base)), ("left out", percent(base["hits"] / warm, 2)))
    )
    for what, option, *pair in ENGINE_CHOICES:
        sized = ((name, runs[Way("", "", QWEN, f"--capacity 4000MiB {words}").command]["lru"]) for name, words in pair)
        rows.append((what + " \\*", option, *((name, _of(run)) for name, run in sized)))
    engine = runs[QWEN_WAYS[0].command]["lru"]
    rows.append(("Which phase \\*", "`--json`", ("all", _of(engine)), ("decode", _decode(engine))))
    lfu, bound = runs[LFU.command], runs[BYPASS.command]
    rows.append(
        (
            "LFU's counts, one by one, warm",
            "`--policy`",
            ("kept: `lfu`", _of(lfu["lfu"])),
            ("lost: `lfu-cache`", _of(lfu["lfu-cache"])),
        )
    )
    rows.append(
        (
            "Belady, 8 slots",
            "`--policy`",
            ("must admit: `belady`", _of(bound["belady"])),
            ("may refuse: `belady-bypass`", _of(bound["belady-bypass"])),
        )
    )
    lines = ["| choice | where | one way | | the other | |", "|---|---|---|--:|---|--:|"]
    return "\n".join(lines + [f"| {what} | {where} | {a} | {x} | {b} | {y} |" for what, where, (a, x), (b, y) in rows])


def code_block(found: dict[str, Any]) -> str:
    """Return the table of the Qwen3 trace and its commands."""
    lines = ["| counted as by | that is | lookups | LRU | Belady |", "|---|---|--:|--:|--:|"]
    for way in CODE_WAYS:
        run = found["runs"][way.command]
        lines.append(
            f"| {way.whose} | {way.words} | {run['lru']['lookups']:,} | {_of(run['lru'])} | {_of(run['belady'])} |"
        )
    return "\n".join([*lines, "", *_commands(CODE_WAYS)])


def qwen_block(found: dict[str, Any]) -> str:
    """Return the table of the trace whose device counted too, and its commands."""
    device = found["device_decode"]
    lines = [
        "| counted as by | that is | lookups | LRU | LRU, decode alone | Belady |",
        "|---|---|--:|--:|--:|--:|",
        f"| **the device itself** | measured | | **{found['published']['device_percent']} %** | {_rate(**device)} | |",
    ]
    for way in QWEN_WAYS:
        lru, belady = (found["runs"][way.command][policy] for policy in ("lru", "belady"))
        cells = [f"{lru['lookups']:,}", _of(lru), _decode(lru), _of(belady)]
        lines.append(f"| {way.whose} | {way.words} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_commands(QWEN_WAYS)])


def belady_block(found: dict[str, Any]) -> str:
    """Return misses a token of the published oracle beside the optimum."""
    lines = [
        '| misses a token | LRU, published | LRU, here | "belady", published | its rule, anew | optimum, here |',
        "|---|--:|--:|--:|--:|--:|",
    ]
    for way in SMALL_WAYS:
        run, told, rule = (
            found["runs"][way.command],
            found["published"]["misses_a_token"][way.whose],
            found["blind_belady"][way.whose],
        )
        cells = [told["lru"], *(run["lru"]["misses"] / rule["tokens"],), told["belady"]]
        cells += [rule["misses"] / rule["tokens"], run["belady"]["misses"] / rule["tokens"]]
        lines.append(f"| {way.whose}, {way.words} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |")
    rule = found["blind_belady"]["code-2000"]
    right = found["runs"][CODE_WAYS[-1].command]["belady"]
    lines += [
        "",
        f"On `{CODE}` (32 slots a layer) that rule hits {_rate(rule['lookups'] - rule['misses'], rule['misses'])}, "
        f"the optimum {_of(right)}.",
        "",
        *_commands(SMALL_WAYS),
    ]
    return "\n".join(lines)


def made_block(found: dict[str, Any]) -> str:
    """Return where files and numbers come from."""
    lines = ["| file | from | licence |", "|---|---|---|"]
    lines += [f"| `{file}` | {facts['from']} | {facts['licence']} |" for file, facts in found["traces"].items()]
    made = found["versions"]
    return "\n".join(
        [
            *lines,
            "",
            f"Replayed at commit {found['commit']} with Python {made['python']}, numpy {made['numpy']} and numba "
            f"{made['numba']}. Every count, the commands of the first table and the files' hashes:",
            "[benchmarks/results/cache_semantics.json](../benchmarks/results/cache_semantics.json).",
        ]
    )


def _commands(ways: tuple[Way, ...]) -> list[str]:
    whose: dict[str, list[str]] = {}
    for way in ways:
        whose.setdefault(way.command, []).append(way.whose)
    return ["```bash", *(f"# {', '.join(names)}\n{command}" for command, names in whose.items()), "```"]


def prepare_block(found: dict[str, Any]) -> str:
    """Return the code that makes the files for the commands."""
    return f"```python\n{PREPARE}```"


BLOCKS = {
    "choices": choices_block,
    "prepare": prepare_block,
    "code": code_block,
    "qwen": qwen_block,
    "belady": belady_block,
    "made": made_block,
}


def main() -> None:
    """Measure, rewrite or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the page differs")
    parser.add_argument("--measure", type=Path, metavar="TRACES", help="replay the public traces in this folder first")
    parser.add_argument("--published", type=Path, metavar="JSON", help="with --measure: the published numbers")
    options = parser.parse_args()
    if options.measure:
        if options.published is None:
            parser.error("--measure needs --published")
        write_json(RESULT, measured(options.measure.resolve(), options.published.resolve()))
    text = PAGE.read_text(encoding="utf-8")
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    new = filled(text, {name: block(found) for name, block in BLOCKS.items()})
    if options.check:
        sys.exit(f"{PAGE.name} is not what the result says; run {Path(__file__).name}" if new != text else 0)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
