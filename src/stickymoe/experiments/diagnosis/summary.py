"""The summary in the terminal: at most 25 lines."""

from __future__ import annotations

import textwrap

from stickymoe.experiments.diagnosis.answers import answers, cautions
from stickymoe.experiments.diagnosis.facts import TraceFacts
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.wording import asked

MOST_LINES = 25
_WIDTH = 100
_LABEL = 10


def summary(found: Diagnosis) -> list[str]:
    """Return the lines, none wider than 100 characters."""
    pairs = [
        ("trace", trace_line(found.facts)),
        ("budget", asked(found.budget)),
        ("counted", found.counted.split(", ", 2)[2]),
        *((answer.word, answer.answer) for answer in answers(found)),
    ]
    pairs += [("caution", text) for text in cautions(found)]
    if found.unanswered:
        pairs.append(("not said", "; ".join(found.unanswered)))
    return fitted(pairs)


def fitted(pairs: list[tuple[str, str]]) -> list[str]:
    """Return labelled lines, cut to the number of lines that a screen holds; the report has the rest."""
    lines = []
    for word, text in pairs:
        kept = text.replace(" %", "\N{NO-BREAK SPACE}%")  # a number and its sign stay on one line
        wrapped = textwrap.wrap(
            kept, _WIDTH, initial_indent=f"{word:<{_LABEL}}", subsequent_indent=" " * _LABEL, break_on_hyphens=False
        )
        lines += [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], " " * _LABEL + "... more in the report"]


def trace_line(facts: TraceFacts) -> str:
    """Return what was read, in one sentence."""
    guess = " (guessed: largest id + 1)" if facts.num_experts_from == "largest id + 1" else ""
    model = f", {facts.model}" if facts.model else ""
    phases = (
        ""
        if facts.prefill_tokens is None
        else f" ({facts.prefill_tokens:,} of prefill, {facts.decode_tokens:,} of decode)"
    )
    many = "sequence" if facts.sequences == 1 else "sequences"
    return (
        f"{facts.name}{model}: {facts.layers} layers × {facts.num_experts} experts{guess}, top-{facts.top_k}, "
        f"{facts.tokens:,} tokens{phases} in {facts.sequences:,} {many}"
    )
