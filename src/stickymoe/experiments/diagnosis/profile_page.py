"""The answers of a usage profile, in the terminal and on the page."""

from __future__ import annotations

from typing import Any

from stickymoe.experiments.diagnosis.answers import Answer
from stickymoe.experiments.diagnosis.page_tables import Table
from stickymoe.experiments.diagnosis.profile import ProfileDiagnosis
from stickymoe.experiments.diagnosis.sections import Section
from stickymoe.experiments.diagnosis.summary import fitted
from stickymoe.experiments.diagnosis.wording import asked, size
from stickymoe.experiments.formatting import DASH, fixed, percent
from stickymoe.experiments.page.plots import axes, colour_of, percents

ALL_LAYERS = "all layers"


def profile_answers(found: ProfileDiagnosis) -> list[Answer]:
    """Return what counts can tell."""
    budget = found.budget
    targets = ", ".join(
        f"{percent(rate)}: " + ("never" if count is None else f"{count:,}" + _inside(budget.bytes_of(count)))
        for rate, count in found.targets.items()
    )
    even = percent(budget.share, 1)
    steep = sorted(found.layers, key=lambda layer: -layer.pinned)
    unused, experts = sum(layer.unused for layer in found.layers), found.experts * len(found.layers)
    return [
        Answer(
            "pinning", "What would pinning catch?",
            f"{percent(found.pinned, 1)} of all uses, if use stays as it was; at an even load {even}",
        ),
        Answer("sizes", "Which budget for 50, 80, 90, 95 %?", f"slots pinned: {targets}"),
        Answer(
            "skew", "Which layers are skewed?",
            f"most {steep[0].name} ({percent(steep[0].pinned)} caught), "
            f"least {steep[-1].name} ({percent(steep[-1].pinned)}); {unused:,} of {experts:,} experts were never used",
        ),
    ]  # fmt: skip


def profile_line(found: ProfileDiagnosis) -> str:
    """Return what was read, in one sentence."""
    model = f", {found.model}" if found.model else ""
    uses = sum(layer.uses for layer in found.layers)
    shape = f"{len(found.layers)} layers × {found.experts} experts"
    return f"{found.name}{model}: counts without order, {shape}, {uses:,} uses"


def profile_summary(found: ProfileDiagnosis) -> list[str]:
    """Return the lines for the terminal."""
    pairs = [
        ("profile", profile_line(found)),
        ("budget", asked(found.budget)),
        *((answer.word, answer.answer) for answer in profile_answers(found)),
        ("not said", "; ".join(found.unanswered) + ": counts have no order, give a trace for these"),
    ]
    return fitted(pairs)


def profile_sections(found: ProfileDiagnosis) -> list[Section]:
    """Return the sections of the page."""
    said = {answer.word: answer for answer in profile_answers(found)}
    targets = [
        (percent(rate), "never", DASH)
        if count is None
        else (percent(rate), f"{count:,}", size(found.budget.bytes_of(count)))
        for rate, count in found.targets.items()
    ]
    layers = [
        (each.name, f"{each.uses:,}", f"{each.unused:,}", fixed(each.entropy), percent(each.pinned, 1))
        for each in found.layers
    ]
    learned = "The pinned experts are learned from the counts they are judged on, so other text will catch less."
    return [
        Section(
            "curve", "How much does pinning catch?", f"{said['pinning'].answer}. {said['sizes'].answer}.",
            plot="curves", alt=f"Share of uses caught against pinned slots. {said['sizes'].answer}.",
            caption=learned, selector="Layer ",
            table=Table("Smallest number of pinned slots", ("uses caught", "slots", "size"), targets),
        ),
        Section(
            "by-layer", "Which layers are skewed?", said["skew"].answer[:1].upper() + said["skew"].answer[1:] + ".",
            table=Table("Layers at the budget", ("layer", "uses", "never used", "entropy, bits", "caught"), layers),
        ),
    ]  # fmt: skip


def profile_plots(found: ProfileDiagnosis) -> dict[str, dict[str, Any]]:
    """Return the plot of coverage."""
    unit = "slots a layer" if found.budget.scope == "layer" else "slots in one pool"
    even = [min(1.0, capacity / found.budget.experts) for capacity in found.capacities]
    lines = (("most used pinned", found.coverage, "solid", 1), ("even load", even, "dot", 0))
    data = [
        {"type": "scatter", "mode": "lines", "name": name, "x": list(found.capacities), "y": percents(values),
         "hovertemplate": "%{y:.1f} % at %{x} " + unit,
         "line": {"color": colour_of(number), "dash": dash, "width": 2.5}}
        for name, values, dash, number in lines
    ]  # fmt: skip
    choices = {ALL_LAYERS: [percents(found.coverage), percents(even)]}
    for layer, skew in enumerate(found.layers):
        choices[f"layer {skew.name}"] = [percents([row[layer] for row in found.per_layer]), percents(even)]
    layout = axes(unit, "uses caught, %")
    layout["yaxis"]["range"] = [0, 101]
    return {"curves": {"data": data, "layout": layout, "choices": choices}}


def _inside(total: int | None) -> str:
    return "" if total is None else f" ({size(total)})"
