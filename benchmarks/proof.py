"""Do locality terms work in other architectures, and can they be had after training? The tables of docs/proof.md.

    stickymoe sweep architectures --jobs 2     # trains, with and without terms; hours
    OMP_NUM_THREADS=1 python benchmarks/proof.py --only 'mixtral/*'     # tunes and measures; two of these at a time
    python benchmarks/readme_numbers.py        # writes the page from what is there

Every model of the sweep reads the same held-out text, its validation split. The routers of each vanilla model are then
tuned with each objective, and with cross-entropy alone for as many steps at the same rate: what that control gains or
loses is not the objective's doing. What is done is kept in results/architectures/proof, a file for each vanilla model,
and not done again; a tuning that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from closing import made_with

from stickymoe.capture.opening import open_model
from stickymoe.core.errors import DataError, StickyMoEError
from stickymoe.core.files import read_json, write_json
from stickymoe.data.samples import load_samples
from stickymoe.experiments.formatting import fixed, percent, signed_percent
from stickymoe.experiments.sweep_report.grid import Cell, Grid, Line, markdown, over_seeds
from stickymoe.experiments.sweep_report.record import ordered
from stickymoe.experiments.tuning.folder import ASKED, RESULT
from stickymoe.experiments.tuning.measured import SHARES, Measured, measured_of, price
from stickymoe.experiments.tuning.measuring import read_held_out
from stickymoe.experiments.tuning.objectives import OBJECTIVES
from stickymoe.experiments.tuning.run import TUNED
from stickymoe.experiments.tuning.settings import TuneSettings
from stickymoe.experiments.tuning.text import prepare_text
from stickymoe.experiments.tuning.tune import tune
from stickymoe.experiments.variants import choose_variants
from stickymoe.metrics.intervals import Interval, mean_interval

ROOT = Path(__file__).resolve().parents[1]
BASE, CONTROL = "vanilla", "ce"
TOKENS, CORPUS = 500_000, "sotu"
# 500,000 tokens are 245 steps of 2,048 here. At the lower rate they take a router as far as ReMoE's 2,000 steps at 5e-5
# do, and as the paper's 1,000 at 1e-4; the higher one goes five times as far.
# `+balance` adds this package's load balancing, which ReMoE switches off.
PLAN = {
    4e-4: (CONTROL, "paper", "remoe", "remoe+balance", "reuse", "working-set"),
    2e-3: (CONTROL, "paper", "remoe", "remoe+balance"),
}
BALANCE = {"load_balancing": 0.01}


@dataclass(frozen=True)
class Found:
    """One model on the held-out text, and the one that it is held against: vanilla, or the control of its rate."""

    here: Measured
    against: Measured

    def change(self, value: Callable[[Measured], float]) -> float:
        """Return by what share a value grew."""
        return value(self.here) / value(self.against) - 1


def settings_of(objective: str, rate: float, seed: int) -> TuneSettings:
    """Return how a router is tuned."""
    name, _, balanced = objective.partition("+")
    coefficients = {**OBJECTIVES[name].coefficients, **(BALANCE if balanced else {})}
    return TuneSettings(name, coefficients, rate, TOKENS, batch_size=8, accumulation=1, control=False, seed=seed)


def tuning_name(objective: str, rate: float) -> str:
    """Return what a tuning is called in files."""
    return f"{objective}@{rate:g}"


class Proof:
    """What is known of one vanilla model and those trained beside it; a file that grows.

    Args:
        sweep: Folder of the sweep.
        name: `size/seed`.
    """

    def __init__(self, sweep: Path, name: str) -> None:
        self.runs, self.name = sweep / "runs" / name, name
        self.work = sweep / "runs" / "tuning" / name
        self.path = sweep / "proof" / f"{name.replace('/', '-')}.json"
        self.content: dict[str, Any] = {"name": name, "models": {}, "tunings": {}}
        if self.path.is_file():
            self.content |= read_json(self.path, DataError, "without it all is measured again")

    def measure(self, variant: str) -> None:
        """Read the held-out text with a trained model."""
        opened, samples = open_model(self.runs / variant), load_samples(CORPUS)
        text = prepare_text(samples, opened.tokenizer, opened.model, settings_of(CONTROL, min(PLAN), 0), _progress)
        told = {"model": opened.name, "data": samples.name}
        found = measured_of(read_held_out(opened.model, text.held_out, batch_size=8, provenance=told))
        self.content["data"] = text.facts
        self._keep("models", variant, {"measured": found.as_dict(), "made_with": made_with()})

    def tune(self, objective: str, rate: float) -> None:
        """Tune the routers of the vanilla model."""
        out = self.work / tuning_name(objective, rate)
        if not (out / RESULT).is_file():
            opened = open_model(self.runs / BASE, for_training=True)
            settings = settings_of(objective, rate, int(self.name.split("/")[1]))
            resume = (out / ASKED).is_file()
            tune(opened, load_samples(CORPUS), out, settings, resume=resume, save_model=False, progress=_progress)
        done = read_json(out / RESULT, DataError, "without its folder all is tuned again")
        kept = {name: done[name] for name in ("settings", "steps", "seconds", "proof")}
        made = {name: done[name] for name in ("hardware", "versions", "commit")}
        self._keep(
            "tunings", tuning_name(objective, rate), {"measured": done["arms"][TUNED], **kept, "made_with": made}
        )

    def complete(self, rates: Iterable[float]) -> None:
        """Do what is not done: models that are trained, tunings of the vanilla one at these learning rates."""
        for variant in sorted(path.parent.name for path in self.runs.glob("*/metrics.json")):
            if variant not in self.content["models"]:
                print(f"{self.name}/{variant}", flush=True)
                self.measure(variant)
        if BASE not in self.content["models"]:
            return
        for rate in rates:
            for objective in PLAN[rate]:
                if tuning_name(objective, rate) not in self.content["tunings"]:
                    print(f"{self.name}: {tuning_name(objective, rate)}", flush=True)
                    self.tune(objective, rate)

    def _keep(self, kind: str, name: str, found: dict[str, Any]) -> None:
        self.content[kind][name] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, self.content)

    def found(self, kind: str, name: str, against: str) -> Found | None:
        """Return what a model measured beside another, if both did."""
        known = self.content[kind]
        if name not in known or against not in known:
            return None
        read = [Measured.from_dict(known[each]["measured"], str(self.path)) for each in (name, against)]
        return Found(*read)


def _progress(what: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        print(f"\r{what}: {done}" + (f" of {total}" if total else "") + " " * 20, end="", file=sys.stderr)


@dataclass(frozen=True)
class Size:
    """One architecture: what its models measured over seeds, by label; the trained ones and the tuned ones."""

    name: str
    trained: dict[str, list[Found]]
    tuned: dict[str, list[Found]]


def sizes_of(sweep: Path) -> list[Size]:
    """Return what is known of every architecture."""
    paths = sorted((sweep / "proof").glob("*.json"))
    proofs = [Proof(sweep, "/".join(path.stem.rsplit("-", 1))) for path in paths]
    names = dict.fromkeys(proof.name.split("/")[0] for proof in proofs)
    return [_size(name, [proof for proof in proofs if proof.name.startswith(f"{name}/")]) for name in names]


def _size(name: str, proofs: list[Proof]) -> Size:
    variants = ordered({name for proof in proofs for name in proof.content["models"]})
    trained = {variant.label: _over(proofs, "models", variant.name, BASE) for variant in choose_variants(variants)}
    tuned = {
        f"{objective}, {rate:g}": _over(proofs, "tunings", tuning_name(objective, rate), tuning_name(CONTROL, rate))
        for rate, objectives in PLAN.items()
        for objective in objectives
    }
    return Size(name, *({label: found for label, found in kind.items() if found} for kind in (trained, tuned)))


def table(size: Size) -> str:
    """Return the table of one architecture."""
    lines = [_line(f"trained: {label}", found) for label, found in size.trained.items()]
    lines += [_line(f"tuned: {label}", found) for label, found in size.tuned.items()]
    first = next(iter(size.trained.values()))[0].here
    held = ", ".join(f"{found['capacity']:g}" for found in first.hit_rates)
    heads = [
        ("", ""), ("Perplexity", ""), ("Costs", "nats a token"), ("Overlap", f"chance {first.chance_overlap:.2f}"),
        ("By use alone", "of overlap"), ("Switch rate", "top-1"),
        *((f"Hits {100 * share:g} %", "LRU, top-k") for share in SHARES), ("Misses", "25 % held"),
        ("Load CV", "0: even"), ("Busiest", "over mean"), ("Gate entropy", "bits"), ("Margin", ""), ("Seeds", ""),
    ]  # fmt: skip
    caption = (
        f"{first.sizes['num_experts']} experts, top {first.sizes['top_k']}; caches hold {held} of them; "
        f"{first.sizes['tokens']:,} held-out tokens. Costs and misses: trained ones against vanilla, tuned ones "
        f"against {CONTROL} at the same rate. ± half of the 95 % interval over seeds; of one seed, that of the cost "
        "alone, over documents."
    )
    return markdown(Grid(f"proof-{size.name}", size.name, caption, heads, lines))


def best(size: Size) -> str:
    """Return in words what added most overlap beyond that of use alone, from scratch and after training.

    Of what ran on the most seeds: a single lucky seed is not to stand beside means of several.
    """

    def told(kind: str, lines: dict[str, list[Found]]) -> str:
        known = {label: found for label, found in lines.items() if found[0].here != found[0].against}
        if not known:
            return f"nothing {kind} yet"
        seeds = max(map(len, known.values()))
        known = {label: found for label, found in known.items() if len(found) == seeds}
        label = max(known, key=lambda each: _mean(known[each], lambda one: beyond_use(one.here)).mean)
        found = known[label]
        return (
            f"{kind}, {label}: overlap {_from_to(found, overlap)} (by use alone {_from_to(found, _of_use)}), misses "
            f"{_told(_mean(found, _more_misses), signed_percent)}, for {_told(_cost(found), _nats)} nats a token "
            f"({seeds} seed{'s' if seeds > 1 else ''})"
        )

    return f"**{size.name}**: {told('from scratch', size.trained)}; {told('tuned afterwards', size.tuned)}."


def _told(found: Interval, write: Callable[[float], str]) -> str:
    cell = over_seeds(found, write)
    return f"{cell.text} {cell.small}".rstrip()


def _nats(value: float) -> str:
    return fixed(value, 3)


def _from_to(found: list[Found], value: Callable[[Measured], float]) -> str:
    ends = (_mean(found, lambda each: value(each.against)).mean, _mean(found, lambda each: value(each.here)).mean)
    return " to ".join(fixed(end) for end in ends)


def _over(proofs: Iterable[Proof], kind: str, name: str, against: str) -> list[Found]:
    return [found for proof in proofs if (found := proof.found(kind, name, against))]


def _mean(found: list[Found], value: Callable[[Found], float]) -> Interval:
    return mean_interval([value(each) for each in found])


def _cost(found: list[Found]) -> Interval:
    one = price(found[0].against, found[0].here)
    return one if len(found) == 1 else _mean(found, lambda each: price(each.against, each.here).mean)


def overlap(found: Measured) -> float:
    """Return the share of a token's experts that the one before it had."""
    return found.mean("expert_overlap")


def beyond_use(found: Measured) -> float:
    """Return the overlap that is the order's doing."""
    return overlap(found) - found.overlap_by_use


def _of_use(found: Measured) -> float:
    return found.overlap_by_use


def misses(found: Measured) -> float:
    """Return the miss rate with a quarter of the experts held."""
    return 1 - found.hit_rate(0.25)


def _more_misses(found: Found) -> float:
    return found.change(misses)


def _line(label: str, found: list[Found]) -> Line:
    def here(name: str, digits: int) -> Cell:
        return over_seeds(_mean(found, lambda each: each.here.mean(name)), lambda value: fixed(value, digits))

    itself = found[0].here == found[0].against
    dash = Cell("–")
    cells = [
        over_seeds(_mean(found, lambda each: each.here.perplexity.mean), lambda value: fixed(value, 1)),
        dash if itself else over_seeds(_cost(found), _nats),
        here("expert_overlap", 3),
        over_seeds(_mean(found, lambda each: each.here.overlap_by_use), lambda value: fixed(value, 3)),
        here("switch_rate", 3),
        *(
            over_seeds(mean_interval([each.here.hit_rate(share) for each in found]), lambda value: percent(value, 1))
            for share in SHARES
        ),
        dash if itself else over_seeds(_mean(found, _more_misses), signed_percent),
        here("load_cv", 2),
        here("load_busiest_over_mean", 2),
        here("gate_entropy_bits", 2),
        here("gate_margin", 3),
        Cell(str(len(found))),
    ]
    return Line(label, cells)


def main() -> None:
    """Tune and measure what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", type=Path, default=ROOT / "results" / "architectures", help="the sweep's folder")
    parser.add_argument("--only", default="*", metavar="SIZE/SEED", help="pattern of models to tune and measure")
    parser.add_argument("--rate", type=float, choices=PLAN, action="append", help="tune at this rate only; repeatable")
    options = parser.parse_args()
    runs = options.sweep / "runs"
    trained = sorted(f"{path.parts[-4]}/{path.parts[-3]}" for path in runs.glob(f"*/*/{BASE}/metrics.json"))
    names = [name for name in dict.fromkeys(trained) if fnmatch(name, options.only)]
    if not names:
        sys.exit(f"no trained {BASE} model of {options.only} under {runs}; run: stickymoe sweep architectures")
    try:
        for name in names:
            Proof(options.sweep, name).complete(options.rate or PLAN)
    except StickyMoEError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
