"""Write the numbers of README and docs from the committed results: between markers stands what this says, nothing else.

    python benchmarks/readme_numbers.py            # rewrite README.md and the pages under docs/ that hold results
    python benchmarks/readme_numbers.py --check    # fail if one differs

`--take-demo demo` first copies a demo's metrics into benchmarks/results/demo.json and its pictures into docs/img.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from marked_blocks import filled
from proof import best, sizes_of, table

from stickymoe.core.errors import DataError, StickyMoEError
from stickymoe.core.files import read_json, write_json
from stickymoe.experiments.comparison import Row, compare
from stickymoe.experiments.demo import DEMO_VARIANTS, SUMMARY_FILE
from stickymoe.experiments.figures import save_figures
from stickymoe.experiments.formatting import duration, fixed, percent, signed_percent, times
from stickymoe.experiments.headline import headline
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.sweep_report.contents import contents_of
from stickymoe.experiments.sweep_report.grid import Grid, markdown
from stickymoe.experiments.sweep_report.result_tables import results_table
from stickymoe.experiments.sweep_report.rows import read_sweep
from stickymoe.experiments.sweep_report.sweep_cautions import ahead_of_learning

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ARCHITECTURES = ROOT / "results" / "architectures"
# Of a sweep; the report shows all.
MAIN_COLUMNS = (
    "Variant", "Perplexity", "Change", "Gain kept", "Switch rate", "Hit rate", "Misses", "Overlap", "Gate entropy",
    "Margin", "Seeds",
)  # fmt: skip
MAIN_VARIANTS = (
    "vanilla", "dense", "soft-0.05", "soft-0.5", "soft-hard-0.1-1", "hard-window-2", "hysteresis-w1-b1",
    "hysteresis-w2-b0.4", "hysteresis-recursive-w1-b1", "soft-0.05-hysteresis-w2-b0.4",
    "reuse-0.05", "remoe", "oracle", "trajectory-token", "hash",
)  # fmt: skip


def _found(path: Path) -> dict[str, Any]:
    return read_json(path, DataError, "make it again, or take the committed one")


def demo_block() -> str:
    """Return the demo's sentence and table."""
    found = _found(RESULTS / "demo.json")
    results = [RunResult(run["name"], run["label"], run) for run in found["runs"]]
    rows, read = compare(results), results[0].read
    caches = list(next(row for row in rows if row.caches).caches)
    machine = (
        f"{read.hardware.get('processor')}, {read.hardware.get('cores')} cores, torch {read.versions.get('torch')}"
    )
    amount = f"{read.train.steps} steps of {read.train.tokens_per_step:,} tokens"
    took = f"; from start to report in {duration(found['seconds'])}" if found["seconds"] else ""
    lines = [
        headline(results),
        "",
        "| variant | perplexity | change | gain kept | switch rate | "
        + " | ".join(f"hits: {cache.short}" for cache in caches)
        + " | gate entropy, bits | margin | use entropy, bits |",
        "|---|" + "--:|" * (7 + len(caches)),
        *(_line(row, caches) for row in rows),
        "",
        f"One seed ({read.seed}), so no intervals; {amount}; hits: LRU, first uses are misses; *gain kept*: the share "
        f"of what experts gain over a dense model of the same active size. {machine}{took}. From "
        "[benchmarks/results/demo.json](benchmarks/results/demo.json), made by "
        "`make demo`; the coefficients were chosen on the validation split "
        "([rule and rows](benchmarks/results/demo_coefficients.json)), and the locality terms grow over the first "
        "half. Read it with care: the Soft rows' gates are flat rather than sure (compare entropy and margin), and "
        "runs that differ in rounding alone have ended 5 to 20 % apart in perplexity: one seed decides little "
        "([decision 13](docs/decisions/0013-the-demos-shape-and-coefficients.md)).",
    ]
    return "\n".join(lines)


def _line(row: Row, caches: list[Any]) -> str:
    routing = row.routing
    cells = [row.label, fixed(row.perplexity, 1), signed_percent(row.perplexity_change), percent(row.share_kept)]
    cells += [fixed(routing.switch_rate.mean if routing else None)]
    cells += [percent(row.caches[cache].hit_rate, 1) if routing else "–" for cache in caches]
    cells += [
        fixed(routing.gate_entropy_bits.mean if routing else None),
        fixed(routing.gate_margin.mean if routing else None),
        fixed(routing.utilisation_entropy_bits.mean if routing else None),
    ]
    return "| " + " | ".join(cells) + " |"


def speed_block() -> str:
    """Return what a training step costs."""
    found = _found(RESULTS / "train_step.json")
    ratios, ours = found["ratios"], found["contenders"]["product bf16"]
    names = {
        "product bf16": "StickyMoE, bf16, sticky objective included",
        "full logits bf16": "same model, all logits at once, bf16",
        "full logits float32": "same model, all logits at once, float32",
        "mixtral bf16": "transformers' Mixtral of the same sizes, bf16",
    }
    rows = []
    for name, label in names.items():
        row = found["contenders"][name]
        rows.append(f"| {label} | {_times_ms(row)} | {row['peak_mib']:,.0f} MiB |")
    lines = [
        f"{found['what'][0].upper()}{found['what'][1:]}, forward to optimizer, on {_machine(found)}:",
        "",
        "| | p20 | p50 | p80 | peak memory |",
        "|---|--:|--:|--:|--:|",
        *rows,
        f"| floor: the counted products alone, as bare bf16 | {_times_ms(found['floor'])} | |",
        f"| the same with the best chunk size for the vocabulary | {_times_ms(found['floor']['chunked'])} | |",
        "",
        f"{times(ratios['speed_over_float32_full_logits'])} the speed of float32 and "
        f"{times(ratios['speed_over_bf16_full_logits'])} that of bf16 with full logits, at "
        f"{percent(ratios['peak_memory_of_bf16_full_logits'])} of the latter's peak memory; "
        f"{percent(ratios['rate_of_floor'])} of the floor's rate, {percent(ratios['rate_of_chunked_floor'])} of the "
        f"chunked floor's. Consistency and anchor add {found['terms']['added_ms']:.1f} ms, "
        f"{percent(ratios['terms_share_of_step'], 1)} of the step of {ours['p50_ms']:.0f} ms. From "
        "[benchmarks/results/train_step.json](benchmarks/results/train_step.json), made by `make bench`.",
    ]
    return "\n".join(lines)


def _times_ms(row: dict[str, float]) -> str:
    return " | ".join(f"{row[key]:.0f} ms" for key in ("p20_ms", "p50_ms", "p80_ms"))


def replay_block() -> str:
    """Return how fast traces are replayed, read and diagnosed."""
    found = _found(RESULTS / "replay.json")
    sections = {(section["section"], section.get("trace")): section for section in found["sections"]}
    replays = [section for name, section in sections.items() if name[0] == "replay"]
    met = {target["what"]: target["found"] for section in found["sections"] for target in section["targets"]}
    contenders = ("ours", "its file reader", "its Python loop")
    lines = [
        f"Replay, requests one at a time, {replays[0]['capacity']} slots a layer, one thread of "
        f"{found['hardware']['processor']}, beside libCacheSim {found['libcachesim']}:",
        "",
        "| million requests a second | StickyMoE | its file reader | its Python loop |",
        "|---|--:|--:|--:|",
    ]
    for section in replays:
        name = f"Qwen3-30B, {section['trace']}" if section["trace"].endswith(".npz") else section["trace"]
        for policy, label in (("lru", "LRU"), ("lfu-cache", "LFU"), ("belady", "Belady")):
            rows = {row["contender"]: row for row in section["rows"] if row.get("policy") == policy}
            rates = " | ".join(f"{rows[each]['accesses_per_second'] / 1e6:.1f}" for each in contenders)
            lines.append(f"| {name}: {label} | {rates} |")
    lines += [
        "",
        f"LRU at every capacity takes {times(met['LRU curve, time over one capacity'])} one capacity; `diagnose` of "
        f"{replays[0]['accesses'] / 1e6:.2f} M lookups {met['diagnose with report, seconds']:.0f} s, report included; "
        f"JSONL is read at {met['import, MB/s']:.0f} MB/s, 1 GB of it within {met['import, peak MiB']:.0f} MiB; 10⁸ "
        f"lookups stream in {times(met['stream, peak memory of ten times the accesses'])} the memory of 10⁷. From "
        "[benchmarks/results/replay.json](benchmarks/results/replay.json), made by `python benchmarks/replay.py`.",
    ]
    return "\n".join(lines)


def sweep_block(name: str, up: str = "") -> str:
    """Return a sweep's headline, its main variants over all seeds, and the verdicts on the paper's claims.

    Args:
        name: Of the sweep.
        up: The way from the page to the root.
    """
    place = ROOT / "results" / name
    contents = contents_of(read_sweep(place), f"stickymoe report results/{name}")
    tables = [_main_rows(results_table(size, contents.sweep.note)) for size in contents.sizes]
    verdicts: dict[str, list[str]] = {}
    for claim in contents.claims:
        verdicts.setdefault(claim.verdict, []).append(claim.claim)
    verdicts_of = [f"- **{verdict}**: {'; '.join(claims)}." for verdict, claims in verdicts.items()]
    runs = contents.sweep.complete
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    lines = [
        contents.headline,
        "",
        *tables,
        *[f"At {size.size} {text}\n" for size in contents.sizes if (text := ahead_of_learning(size))],
        *verdicts_of,
        "",
        f"Seeds {seeds}; {duration(3600 * sum(run.hours or 0 for run in runs))} on the clock in all, pauses included. "
        f"Other variants, curves, layers and what decides a verdict: [report]({up}results/{name}/report.md), the "
        f"[same with plots to hover over]({up}results/{name}/report.html) (download it), from the rows in "
        f"`results/{name}/rows`; `stickymoe sweep {name} --jobs 2 && stickymoe report results/{name}` makes both.",
    ]
    return "\n".join(lines)


def _main_rows(table: Grid) -> str:
    kept = [place for place, (head, _) in enumerate(table.heads) if head in MAIN_COLUMNS]
    lines = [
        replace(line, cells=[line.cells[place - 1] for place in kept if place])
        for line in table.lines
        if line.variant in MAIN_VARIANTS
    ]
    short = markdown(replace(table, heads=[table.heads[place] for place in kept], lines=lines))
    return short.split("\n\n", 1)[1]  # without its heading


def capture_block() -> str:
    """Return what locality terms add to a step of somebody else's model."""
    found = _found(RESULTS / "capture_overhead.json")
    heads = ["step alone, p50", "capture", "terms", "terms and log", "floor: the terms alone, on gates that are there"]
    rows = [
        [
            f"{name}, {model['parameters'] / 1e6:.0f} M parameters",
            f"{model['contenders']['alone']['p50_ms']:.0f} ms",
            *(
                signed_percent(model["overhead_rate"][each])
                for each in ("captured", "with terms", "with terms and log")
            ),
            percent(model["bound_rate"], 1),
        ]
        for name, model in found["models"].items()
    ]
    aim = f"The aim is at most {percent(found['asked_overhead_rate'])} with terms."
    return _overheads("capture_overhead", found, f"{found['what'][0].upper()}{found['what'][1:]}", heads, rows, aim)


def record_block() -> str:
    """Return what recording a trace costs."""
    found = _found(RESULTS / "record_overhead.json")
    heads = ["plain", "recorded", "overhead p20", "p50", "p80"]
    rows = [
        [
            name,
            f"{row['plain_seconds']:.2f} s",
            f"{row['recorded_seconds']:.2f} s",
            *(signed_percent(row["overhead"][f"p{p}"]) for p in (20, 50, 80)),
        ]
        for name, row in found["rows"].items()
    ]
    what = found["what"].replace("record_trace", "`record_trace`")
    return _overheads("record_overhead", found, what, heads, rows, "The aim is at most 10 %.")


def _overheads(name: str, found: dict[str, Any], what: str, heads: list[str], rows: list[list[str]], aim: str) -> str:
    """Return the table of a benchmark of overheads, with what it was measured on and where it comes from."""
    lines = [
        f"{what}; {found['rounds']} rounds on {_machine(found)}:",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---|" + "--:|" * len(heads),
        *("| " + " | ".join(cells) + " |" for cells in rows),
        "",
        f"{aim} {_source(name)}",
    ]
    return "\n".join(lines)


def _machine(found: dict[str, Any]) -> str:
    return f"{found['hardware']['threads']} threads of {found['hardware']['processor']}"


def _source(name: str) -> str:
    file = f"benchmarks/results/{name}.json"
    return f"From [{file}](../{file}), made by `python benchmarks/{name}.py --json {file}`."


def proof_tables_block() -> str:
    """Return what locality terms do in other architectures, and after training."""
    return "\n".join(table(size) for size in sizes_of(ARCHITECTURES))


def proof_block() -> str:
    """Return the best of it."""
    return "\n".join(f"- {best(size)}" for size in sizes_of(ARCHITECTURES))


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {
        "demo": demo_block,
        "sweep": lambda: sweep_block("demo"),
        "speed": speed_block,
        "replay": replay_block,
        "proof": proof_block,
    },
    "docs/training.md": {"capture": capture_block},
    "docs/recording.md": {"record": record_block},
    "docs/reproduce.md": {"paper-short": lambda: sweep_block("paper-short", "../")},
    "docs/proof.md": {"proof": proof_block, "proof-tables": proof_tables_block},
}


def take_demo(folder: Path) -> None:
    """Copy a finished demo's metrics and figures into the repository."""
    results = [RunResult.load(folder / "runs" / variant.name) for variant in DEMO_VARIANTS]
    write_json(RESULTS / "demo.json", _found(folder / SUMMARY_FILE))
    for path in save_figures(ROOT / "docs" / "img", results):
        path.rename(path.with_name(f"demo-{path.name}"))


def main() -> None:
    """Rewrite or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a page differs")
    parser.add_argument("--take-demo", type=Path, metavar="FOLDER", help="a finished demo to take over first")
    options = parser.parse_args()
    try:
        if options.take_demo:
            take_demo(options.take_demo)
        for name, blocks in PAGES.items():
            page = ROOT / name
            text = page.read_text(encoding="utf-8")
            new = filled(text, {block: make() for block, make in blocks.items()})
            if options.check and new != text:
                sys.exit(f"{name} is not what the results say; run benchmarks/readme_numbers.py")
            if new != text:
                page.write_text(new, encoding="utf-8")
    except StickyMoEError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
