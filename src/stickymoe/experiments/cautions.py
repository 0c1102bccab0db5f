"""Plain warnings that stand beside the numbers: flat gates, collapsed experts, gains too thin to prove anything."""

from __future__ import annotations

from collections.abc import Sequence

from stickymoe.experiments.comparison import Row, find_baseline, find_dense, moe_gain
from stickymoe.experiments.formatting import fixed

FLAT_ENTROPY_SHARE = 0.95
FLAT_MARGIN = 0.1
THIN_GAIN_NATS = 0.05


def cautions(rows: Sequence[Row]) -> list[str]:
    """Return what a reader must know before believing the table; empty if there is nothing."""
    found = _about_the_gain(rows)
    for row in rows:
        found += [text for text in (_flat_gates(row), _collapse(row)) if text]
    return found + _about_the_setting(rows)


def _about_the_gain(rows: Sequence[Row]) -> list[str]:
    results = [row.result for row in rows]
    vanilla, dense = find_baseline(results), find_dense(results)
    if vanilla is None or len(rows) == 1:
        return []
    if dense is None:
        return ["No dense control was trained: how much of what the experts are worth a variant keeps is unknown."]
    gain = moe_gain(vanilla, dense)
    if gain <= 0:
        return [
            f"The experts gain nothing over the dense control ({fixed(gain, 3)} nats a token): "
            "locality is free here and proves nothing."
        ]
    if gain < THIN_GAIN_NATS:
        return [
            f"The experts gain only {fixed(gain, 3)} nats a token over the dense control: "
            "shares of so thin a gain move much from seed to seed."
        ]
    return []


def are_flat(entropy_bits: Sequence[float], margins: Sequence[float], ceiling_bits: float) -> list[int]:
    """Return the layers whose gates are flat: near uniform, and without a favourite."""
    return [
        layer
        for layer, (entropy, margin) in enumerate(zip(entropy_bits, margins, strict=True))
        if entropy > FLAT_ENTROPY_SHARE * ceiling_bits and margin < FLAT_MARGIN
    ]


def flat_layers(row: Row) -> list[int]:
    """Return the layers whose gates are flat; none in a dense model."""
    if row.routing is None:
        return []
    gates = row.routing.gate_entropy_bits.per_layer, row.routing.gate_margin.per_layer
    return are_flat(*gates, row.entropy_ceiling_bits)


def _flat_gates(row: Row) -> str | None:
    """Gates near uniform are 'sticky' for the loss, yet the choice among experts is then a matter of rounding."""
    flat = flat_layers(row)
    if row.routing is None or not flat:
        return None
    entropy, margin = row.routing.gate_entropy_bits.per_layer, row.routing.gate_margin.per_layer
    ceiling = row.entropy_ceiling_bits
    worst = max(flat, key=lambda layer: entropy[layer])
    return (
        f"{row.label}: the gates of {_layers(flat)} are flat rather than sticky (layer {worst}: entropy "
        f"{fixed(entropy[worst])} of {fixed(ceiling)} bits, margin {fixed(margin[worst], 3)}): "
        "the router hardly prefers any expert, so little separates staying from switching."
    )


def is_collapsed(in_use: float, experts: int, top_k: int) -> bool:
    """Tell whether a layer gave most of its experts up; `in_use`: 2 to the utilisation entropy in bits."""
    return in_use < max(experts / 2, 1.2 * top_k)


def _collapse(row: Row) -> str | None:
    """Locality is cheap for a router that has given most experts up."""
    if row.routing is None:
        return None
    experts, top_k = row.result.read.num_experts, row.result.read.top_k
    in_use = [2**entropy for entropy in row.routing.utilisation_entropy_bits.per_layer]
    collapsed = [layer for layer in range(len(in_use)) if is_collapsed(in_use[layer], experts, top_k)]
    if not collapsed:
        return None
    worst = min(collapsed, key=lambda layer: in_use[layer])
    return (
        f"{row.label}: {_layers(collapsed)} use few experts (layer {worst}: as if {fixed(in_use[worst], 1)} of "
        f"{experts}): locality won by giving experts up is no gain."
    )


def _about_the_setting(rows: Sequence[Row]) -> list[str]:
    found = []
    if len({row.result.read.seed for row in rows}) == 1:
        seed = rows[0].result.read.seed
        found.append(f"One seed ({seed}): the differences carry no interval, another seed would move them.")
    if len({row.result.read.commit for row in rows}) > 1:
        found.append("The runs come from different commits of the code.")
    if len({(row.result.read.train.steps, row.result.read.train.tokens_per_step) for row in rows}) > 1:
        found.append("The runs did not train on the same number of tokens: their perplexities do not compare.")
    return found


def _layers(layers: Sequence[int]) -> str:
    return ("layer " if len(layers) == 1 else "layers ") + ", ".join(str(layer) for layer in layers)
