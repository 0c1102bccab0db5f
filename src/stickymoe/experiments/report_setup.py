"""The report's setup section: what was run, on what, from what; one line a fact, differences between runs shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stickymoe.experiments.formatting import duration
from stickymoe.experiments.results import RunResult

_OWN_KEYS = ("commands", "notes", "seconds")
_LONG = 160


@dataclass(frozen=True)
class Fact:
    """A labelled value; a long one is folded away."""

    label: str
    value: str

    @property
    def is_long(self) -> bool:
        """Whether the value is better folded."""
        return len(self.value) > _LONG


def setup_facts(results: Sequence[RunResult], setup: Mapping[str, Any]) -> list[Fact]:
    """Return the facts of the runs, then those of `setup` beyond its commands, notes and seconds."""
    reads = [result.read for result in results]
    seconds = setup.get("seconds", sum(read.train.seconds for read in reads))
    facts = [
        Fact("Text", _distinct(read.corpus.name for read in reads)),
        Fact(
            "Evaluated on", _distinct(f"{read.predicted_tokens:,} tokens of the {read.split} split" for read in reads)
        ),
        *_flat("Text", _extras([read.corpus.model_dump(exclude={"name"}) for read in reads])),
        Fact("Model", _distinct(_shape(result) for result in results)),
        Fact("Training", _distinct(_training(result) for result in results)),
        Fact("Seed", _distinct(str(read.seed) for read in reads)),
        Fact("Duration", duration(float(seconds)) + ("" if "seconds" in setup else ", training alone")),
        *_flat("Hardware", _extras([read.hardware for read in reads])),
        Fact(
            "Versions", _distinct(", ".join(f"{key} {value}" for key, value in read.versions.items()) for read in reads)
        ),
        Fact("Commit", _distinct(read.commit for read in reads)),
    ]
    for key, value in setup.items():
        if key not in _OWN_KEYS:
            words = _words(key)
            facts += _flat(words[:1].upper() + words[1:], value)
    return [fact for fact in facts if fact.value]


def _shape(result: RunResult) -> str:
    read = result.read
    if read.is_dense:
        return f"{result.label}: {read.num_layers} layers, {read.num_experts} experts, all used by every token"
    return f"{read.num_layers} layers, {read.num_experts} experts a layer, top-{read.top_k}"


def _training(result: RunResult) -> str:
    train = result.read.train
    total = train.steps * train.tokens_per_step
    return f"{train.steps:,} steps of {train.tokens_per_step:,} tokens, {total:,} in all"


def _distinct(values: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(values))


def _extras(mappings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return every key with its value; where the runs differ, with the list of its values."""
    merged: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            seen = merged.setdefault(key, [])
            if value is not None and value not in seen:
                seen.append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in merged.items() if values}


def _flat(label: str, value: Any) -> Iterator[Fact]:
    """Turn a table into one fact for each of its keys; what is nested deeper is written out in a line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield Fact(f"{label}: {_words(key)}", _plain(inner))
    else:
        yield Fact(label, _plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(key)} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(_plain(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "none" if value is None else str(value)


def _words(key: object) -> str:
    return str(key).replace("_", " ")
