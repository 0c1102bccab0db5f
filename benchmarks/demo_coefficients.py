"""Choose the demo's coefficients from the runs of its sweep, on the validation split, by a rule written down before.

    stickymoe sweep demo --jobs 2                          # trains; its own rows are of the test split
    python benchmarks/demo_coefficients.py results/demo    # some seconds a run

Rule, for each method apart, over the means of the seeds: of the coefficients that keep at least half of the MoE gain on
the validation split, the one with the fewest misses of the paper's cache (LRU, two slots, top-1). Where none keeps
half, the one that keeps most. Seeds of which a candidate is missing do not count. Ends with the chosen names and the
JSON. The test split is never looked at, the sweep's runs are left as they are.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from closing import close

from stickymoe.experiments.comparison import Row, compare
from stickymoe.experiments.headline import ENOUGH_KEPT
from stickymoe.experiments.results import RunResult
from stickymoe.experiments.run import evaluate_run
from stickymoe.experiments.run_folder import MODEL_FOLDER
from stickymoe.experiments.variants import DENSE, VANILLA, hysteresis, soft, soft_hard

METHODS = {
    "soft": [soft(coefficient) for coefficient in (0.05, 0.1, 0.2, 0.5)],
    "soft-hard": [soft_hard(0.1, anchor) for anchor in (0.1, 0.5, 1.0)],
    "hysteresis": [
        *(hysteresis(window, bonus) for window, bonus in ((1, 0.4), (1, 1.0), (2, 0.4), (2, 1.0))),
        hysteresis(1, 1.0, recursive=True),
    ],
}
NEEDED = [variant.name for variant in (VANILLA, DENSE, *(each for method in METHODS.values() for each in method))]


def main() -> None:
    """Evaluate the runs, print the rows and the choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="folder of the demo's sweep")
    parser.add_argument("--json", type=Path, help="also write the result here")
    options = parser.parse_args()
    runs = options.sweep / "runs" / "demo"
    seeds = [seed for seed in sorted(runs.glob("*")) if all((seed / name / MODEL_FOLDER).is_dir() for name in NEEDED)]
    if not seeds:
        raise SystemExit(
            f"error: no seed under {runs} has all of {', '.join(NEEDED)}; run `stickymoe sweep demo` first"
        )
    results = {seed.name: [measured(seed / name) for name in NEEDED] for seed in seeds}
    rows = summaries([{row.name: row for row in compare(found)} for found in results.values()])
    for row in rows.values():
        print(" ".join(f"{key}={value}" for key, value in row.items()))
    chosen = {name: choose([rows[variant.name] for variant in method]) for name, method in METHODS.items()}
    print("chosen:", ", ".join(chosen.values()))
    read = next(iter(results.values()))[0]
    result = {
        "rule": " ".join((__doc__ or "").split("Rule, ")[1].split("Ends with")[0].split()),
        "seeds": [int(seed) for seed in results],
        "rows": list(rows.values()),
        "chosen": chosen,
        **{key: read.metrics[key] for key in ("split", "train", "hardware", "versions", "commit")},
    }
    close(result, options.json)


def measured(run: Path) -> RunResult:
    """Evaluate a copy of a finished run on the validation split."""
    print(f"{run.parent.name}/{run.name}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(run, Path(place) / run.name)
        return evaluate_run(copy, "validation")


def choose(rows: list[dict[str, Any]]) -> str:
    """Return the name of the row that the rule takes."""
    kept = [row for row in rows if row["share_kept"] >= ENOUGH_KEPT]
    best = max(kept, key=lambda row: row["hit_rate"]) if kept else max(rows, key=lambda row: row["share_kept"])
    return str(best["name"])


def summaries(seeds: list[dict[str, Row]]) -> dict[str, dict[str, Any]]:
    """Return, by variant, the means over seeds of what the choice rests on and of what keeps it honest."""
    found = {}
    for name in NEEDED:
        figures = [figures_of(rows[name]) for rows in seeds]
        found[name] = {"name": name} | {
            key: round(statistics.fmean(each[key] for each in figures), 4) for key in figures[0]
        }
    return found


def figures_of(row: Row) -> dict[str, float]:
    """Return a run's figures; those of routing only where it routes."""
    if row.share_kept is None:
        raise SystemExit(f"error: the dense control is no worse than Vanilla: {row.name} has no share of a gain")
    found = {"perplexity": row.perplexity, "share_kept": row.share_kept}
    if row.routing is not None:
        found |= {
            "switch_rate": row.routing.switch_rate.mean,
            "overlap": row.routing.expert_overlap.mean,
            "hit_rate": row.result.read.cache[0].hit_rate,
            "gate_entropy_bits": row.routing.gate_entropy_bits.mean,
            "gate_margin": row.routing.gate_margin.mean,
            "utilisation_entropy_bits": row.routing.utilisation_entropy_bits.mean,
        }
    return found


if __name__ == "__main__":
    main()
