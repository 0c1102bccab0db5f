"""Rows of a sweep that never ran: numbers made up for tests, settable one by one. They are not results."""

from __future__ import annotations

import json
import math
import random
from functools import cache, partial

STEPS, LAYERS, EXPERTS, TOP_K = 100, 4, 4, 2
PIECES = ("The", " union", " of", " states", "\n", "is", " <b>", " strong", ".", " We", " must", " act")
SEED_NOISE = 0.004
# perplexity over vanilla's, top-1 switch rate, gate entropy in bits, margin
SHAPE = {
    "vanilla": (1.0, 0.71, 1.3, 0.4),
    "dense": (1.12, 0.0, 0.0, 0.0),
    "soft-0.01": (0.99, 0.62, 1.5, 0.3),
    "soft-0.05": (0.995, 0.55, 1.6, 0.25),
    "soft-0.1": (1.01, 0.47, 1.8, 0.15),
    "soft-0.2": (1.02, 0.4, 1.9, 0.1),
    "soft-0.5": (1.04, 0.3, 1.99, 0.02),
    "soft-hard-0.1-1": (1.004, 0.26, 1.9, 0.12),
    "hard-window-2": (1.06, 0.5, 0.4, 0.9),
    "hard-window-8": (1.05, 0.56, 0.4, 0.9),
    "remoe": (1.0, 0.705, 1.3, 0.4),
    "oracle": (1.01, 0.6, 1.3, 0.4),
    "hysteresis-w1-b1": (1.015, 0.4, 1.48, 0.32),
}
EVEN, FIRST_RESISTS = (1, 1, 1, 1), (1.5, 0.8, 0.85, 0.85)  # switch rates of layers over their mean
BASES = {"small": 245.0, "medium": 270.0}


def invented_rows(sizes=("small",), seeds=(42, 43, 44), variants=tuple(SHAPE), **changes):
    make = partial(invented_row, **changes) if changes else usual_row
    return [make(size, seed, name) for size in sizes for seed in seeds for name in variants]


@cache
def usual_row(size, seed, variant):
    return invented_row(size, seed, variant)


def invented_row(size="small", seed=42, variant="vanilla", *, complete=True, sweep="invented", **changes):
    """One row; `change`, `rate`, `entropy`, `margin` and `layers` replace the shape's, other words the row's fields."""
    from stickymoe.experiments.sweeps.row import ResultRow
    from stickymoe.experiments.variants import FAMILIES, VARIANTS

    known = VARIANTS.get(variant)
    shape = dict(zip(("change", "rate", "entropy", "margin"), SHAPE.get(variant, SHAPE["vanilla"]), strict=True))
    shape["layers"] = EVEN if variant in ("vanilla", "remoe") else FIRST_RESISTS
    numbers = {name: changes.pop(name, value) for name, value in shape.items()}
    metrics = changes.pop("metrics", None) or measured(size, seed, variant, **numbers)
    row = {
        "sweep": sweep, "run": f"{size}/{seed}/{variant}", "key": "k", "size": size, "seed": seed, "variant": variant,
        "family": next((name for name, grid in FAMILIES.items() if known in grid), variant),
        "label": known.label if known else variant, "settings": "{}", "note": "invented numbers", "split": "validation",
        "corpus": "toy", "corpus_fingerprint": "f", "complete": complete, "steps": STEPS,
        "steps_done": STEPS if complete else 40, "hours": 0.25, "tokens_per_step": 4096,
        "num_experts": metrics["num_experts"], "top_k": TOP_K, "num_layers": LAYERS,
        "training_version": 1, "evaluation_version": 1, "recipe_hash": "0123456789abcdef",
        "recipe": json.dumps(recipe(size, seed, variant)), "hardware": json.dumps({"processor": "toy", "cores": 2}),
        "versions": json.dumps({"torch": "2.0"}), "commit": "abc1234",
        "metrics": json.dumps(metrics) if complete else "",
    } | curves(metrics) | ({} if variant == "dense" else passage(seed, variant)) | changes  # fmt: skip
    return ResultRow.model_validate(row)


def measured(size, seed, variant, *, change, rate, entropy, margin, layers=None):
    noise = random.Random(f"{size} {seed} {variant}").uniform(-1, 1) * SEED_NOISE
    base = BASES.get(size, 200.0) * (1 + 0.01 * random.Random(f"{size} {seed}").uniform(-1, 1))
    perplexity = base * change * (1 + noise)
    rate = rate * (1 + noise)
    experts = TOP_K if variant == "dense" else EXPERTS
    per_layer = [min(1.0, rate * factor) for factor in layers or EVEN]
    hits = round(10_000 * (1 - 0.65 * rate))
    return {
        "schema": 1, "split": "validation", "perplexity": perplexity, "cross_entropy": math.log(perplexity),
        "predicted_tokens": 5000, "num_experts": experts, "top_k": TOP_K, "num_layers": LAYERS, "seed": seed,
        "routing": {
            "switch_rate": layered(per_layer), "set_switch_rate": flat(min(1.0, 1.1 * rate)),
            "expert_overlap": flat(1 - 0.5 * rate) | {"chance": 0.5}, "utilisation_entropy_bits": flat(1.97),
            "load_cv": flat(0.2), "load_busiest_over_mean": flat(1.3), "gate_entropy_bits": flat(entropy),
            "gate_margin": flat(margin),
        },
        "cache": [
            {"policy": "lru", "capacity": 2, "scope": "layer", "accesses": "top1", "replay": "sequential",
             "reset": "sequence", "hits": hits, "misses": 10_000 - hits, "hit_rate": hits / 10_000},
        ],
        "parameters": {"total": 22_000_000 if size == "medium" else 8_800_000, "active": 4_000_000},
        "train": {"steps": STEPS, "seconds": 900.0, "tokens_per_step": 4096},
        "corpus": {"name": "toy", "fingerprint": "f", "tokenizer": {"name": "gpt2", "vocab_size": 50257},
                   "counts": {"train": {"tokens": 2_400_000}, "validation": {"tokens": 5001}}},
        "hardware": {}, "versions": {}, "commit": "abc1234",
    }  # fmt: skip


def layered(values):
    return {"mean": sum(values) / len(values), "per_layer": values}


def flat(value):
    return layered([value] * LAYERS)


def curves(metrics):
    final, steps = metrics["cross_entropy"], range(10, STEPS + 1, 10)
    rate = metrics["routing"]["switch_rate"]["mean"]
    return {
        "curve_step": list(steps),
        "curve_cross_entropy": [final + 3 * math.exp(-step / 20) for step in steps],
        "curve_switch_rate": [rate + 0.1 * math.exp(-step / 20) for step in steps],
        "curve_gate_entropy_bits": [1.5 for _ in steps],
        "curve_gate_margin": [0.3 for _ in steps],
    }


def passage(seed, variant):
    draw = random.Random(f"{seed} {variant}")
    pairs = [draw.sample(range(EXPERTS), TOP_K) for _ in range(len(PIECES) * LAYERS)]
    return {
        "passage_pieces": list(PIECES),
        "passage_expert_ids": [expert for pair in pairs for expert in pair],
        "passage_expert_weights": [weight for _ in pairs for weight in (0.7, 0.3)],
    }


def recipe(size, seed, variant):
    objective = {"consistency": 0.0, "anchor": 0.0, "load_balancing": 0.01, "window": 4}
    if variant.startswith("soft"):
        objective["consistency"] = float(variant.split("-")[2 if variant.startswith("soft-hard") else 1])
    return {
        "name": variant, "label": variant,
        "data": {"corpus": "toy", "tokenizer": "gpt2", "sequence_length": 256, "respect_documents": False},
        "model": {"preset": f"paper-{size}"}, "objective": objective,
        "training": {"steps": STEPS, "batch_size": 16, "peak_learning_rate": 3e-4, "warmup_steps": 10, "seed": seed},
    }  # fmt: skip
