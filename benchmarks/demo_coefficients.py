"""Choose the demo's coefficients: a small sweep on the validation split, by a rule written down before it ran.

    python benchmarks/demo_coefficients.py --out runs/demo-sweep    # about half an hour on two cores

Rule, for each method apart: of the coefficients that keep at least half of the MoE gain on the validation split, the
one with the fewest misses of the paper's cache (LRU, two slots, top-1). Where none keeps half, the one that keeps most.
Ends with the chosen names and the JSON. The test split is never touched.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stickymoe.cli.progress import progress_bars
from stickymoe.core.files import write_json
from stickymoe.experiments.comparison import Row, compare
from stickymoe.experiments.demo import run_demo
from stickymoe.experiments.headline import choose_highlight
from stickymoe.experiments.variants import DENSE, VANILLA, hysteresis, soft, soft_hard

METHODS = {
    "soft": [soft(coefficient) for coefficient in (0.05, 0.1, 0.2, 0.5)],
    "soft-hard": [
        soft_hard(coefficient, anchor) for coefficient, anchor in ((0.05, 0.5), (0.1, 0.1), (0.1, 0.5), (0.1, 1.0))
    ],
    "hysteresis": [hysteresis(window, bonus) for window, bonus in ((1, 0.4), (1, 1.0), (2, 0.4))],
}


def main() -> None:
    """Run the sweep, print the rows and the choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-sweep"), help="folder of the runs")
    parser.add_argument("--json", type=Path, help="also write the result here")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="TABLE.KEY=VALUE")
    options = parser.parse_args()
    variants = [VANILLA, DENSE, *(variant for method in METHODS.values() for variant in method)]
    with progress_bars() as report:
        results, page = run_demo(
            options.out, variants=variants, split="validation", overrides=options.overrides, progress=report
        )
    rows = {row.name: row for row in compare(results)}
    chosen = {
        name: choose_highlight([rows[variant.name] for variant in method]).name for name, method in METHODS.items()
    }
    result = {
        "rule": " ".join((__doc__ or "").split("Rule, ")[1].split("Ends with")[0].split()),
        "rows": [summary(row) for row in rows.values()],
        "chosen": chosen,
        "overrides": options.overrides,
        **{key: results[0].metrics[key] for key in ("split", "seed", "train", "hardware", "versions", "commit")},
    }
    for row in result["rows"]:
        print(" ".join(f"{key}={value}" for key, value in row.items()))
    print("chosen:", ", ".join(chosen.values()), " report:", page)
    if options.json:
        write_json(options.json, result)
    print(json.dumps(result))


def summary(row: Row) -> dict[str, Any]:
    """Return the numbers of a run that the choice rests on, and those that keep it honest."""
    read = row.result.read
    found: dict[str, Any] = {"name": row.name, "perplexity": round(row.perplexity, 2)}
    if row.share_kept is not None:
        found["share_kept"] = round(row.share_kept, 4)
    if row.routing is not None:
        found |= {
            "switch_rate": round(row.routing.switch_rate.mean, 4),
            "overlap": round(row.routing.expert_overlap.mean, 4),
            "hit_rate": round(read.cache[0].hit_rate, 4),
            "gate_entropy_bits": round(row.routing.gate_entropy_bits.mean, 4),
            "gate_margin": round(row.routing.gate_margin.mean, 4),
            "utilisation_entropy_bits": round(row.routing.utilisation_entropy_bits.mean, 4),
        }
    return found


if __name__ == "__main__":
    main()
