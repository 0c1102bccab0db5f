"""The sections of the page: a question, its plot, how to read it, and the table of its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stickymoe.experiments.diagnosis import page_tables as tables
from stickymoe.experiments.diagnosis.answers import Answer, answers
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.formatting import percent

Said = Mapping[str, Answer]


class Part(NamedTuple):
    """A part of the bar of lookups."""

    kind: str
    weight: float
    label: str


@dataclass(frozen=True)
class Section:
    """One section; a plot is named by its id, its words in `alt` are for those who do not see it."""

    id: str
    title: str
    text: str
    plot: str = ""
    alt: str = ""
    caption: str = ""
    selector: str = ""
    table: tables.Table | None = None
    folded: tables.Table | None = None
    parts: tuple[Part, ...] = ()


def sections(found: Diagnosis) -> list[Section]:
    """Return the sections for which there are numbers, in reading order."""
    said = {answer.word: answer for answer in answers(found)}
    return [*_size(found, said), *_cause(found, said), *_where(found, said), *_help(found, said)]


def _size(found: Diagnosis, said: Said) -> Iterator[Section]:
    sizes, knee, more = (said[word].answer for word in ("sizes", "knee", "next"))
    yield Section(
        "curve",
        "How much cache for which hit rate?",
        f"{_upper(sizes)}. Knee: {knee}. {_upper(more)}.",
        plot="curves",
        selector="Layer ",
        alt=f"Hit rate against cache size. {sizes}.",
        caption="Every capacity of LRU is exact. Belady knows the future: no policy that must load what it runs does "
        "better. The knee is the point farthest above the line between the curve's ends. The legend hides and shows.",
        table=tables.target_table(found),
        folded=tables.curve_table(found),
    )


def _cause(found: Diagnosis, said: Said) -> Iterator[Section]:
    shares = found.shares
    parts = (
        Part("hit", 1 - shares.misses, f"hits {percent(1 - shares.misses, 1)}"),
        Part("policy", shares.policy, f"LRU's own misses {percent(shares.policy, 1)}"),
        Part("set", shares.working_set, f"working set {percent(shares.working_set, 1)}"),
        Part("first", shares.first_use, f"first uses {percent(shares.first_use, 1)}"),
    )
    minus = "\N{MINUS SIGN}"
    yield Section(
        "cause",
        "Policy failure or working-set failure?",
        f"{found.verdict.sentence}. Best policy: {said['policy'].answer}. "
        f"Gap captured = (policy {minus} LRU) / (Belady {minus} LRU).",
        table=tables.policy_table(found),
        parts=tuple(part for part in parts if part.weight > 0),
    )


def _where(found: Diagnosis, said: Said) -> Iterator[Section]:
    if "layers" in said:
        yield Section(
            "by-layer",
            "Which layers suffer?",
            _upper(said["layers"].answer) + ".",
            plot="layers",
            alt=f"Hit rate of each layer at the budget: {said['layers'].answer}.",
            caption="All layers get the same slots." if found.budget.scope == "layer" else "All layers share one pool.",
            table=tables.layer_table(found),
        )
    if found.phases:
        text = _upper(said["phases"].answer) + "."
        yield Section("phases", "Prefill or decode?", text, table=tables.phase_table(found))
    if found.warm_up is not None:
        yield Section(
            "cold",
            "Cold start or steady state?",
            f"{_upper(said['start'].answer)}. An engine's counter shows the first rate, a long conversation feels the "
            "second.",
            plot="start",
            alt=f"Hit rate by tokens since the cold start: {said['start'].answer}.",
            caption="Tokens counted from the start of their sequence, cold there, all sequences together; replayed "
            "token by token.",
            table=tables.start_table(found),
        )
    yield Section(
        "order",
        "Skew or locality?",
        f"{_upper(said['locality'].answer)}. Shuffling the tokens keeps how popular the experts are and loses which "
        "came after which.",
        table=tables.locality_table(found),
    )


def _help(found: Diagnosis, said: Said) -> Iterator[Section]:
    if found.remedies:
        yield Section(
            "pay",
            "What would pay?",
            _upper(said["pays"].answer) + ".",
            plot="remedies",
            alt="Gain of each remedy over LRU, in the table.",
            caption="Each remedy replayed at the same budget. Hatched bars are out of reach: they know the future.",
            table=tables.remedy_table(found),
        )
    if found.timing is not None:
        yield Section("time", "What does it cost in time?", said["time"].answer + ".", table=tables.time_table(found))
    if found.stickiness is not None:
        yield Section(
            "locality-trained",
            "What would a router trained for locality be worth?",
            f"{_upper(said['sticky'].answer)}. This is {found.stickiness.model}.",
            plot="sticky",
            alt=f"Modelled hit rate against overlap: {said['sticky'].answer}.",
            caption="The star is this trace. How far it stands from the curve of its own capacity says how far to "
            "trust the model.",
            table=tables.sticky_table(found),
        )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
