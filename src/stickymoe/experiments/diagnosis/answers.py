"""The questions people ask, each answered in a sentence with its numbers; terminal and page print the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stickymoe.experiments.diagnosis.layers import worst_layers
from stickymoe.experiments.diagnosis.locality import SAID
from stickymoe.experiments.diagnosis.policies import best_online
from stickymoe.experiments.diagnosis.record import Diagnosis
from stickymoe.experiments.diagnosis.remedies import Remedy
from stickymoe.experiments.diagnosis.wording import loads, points, size, slots
from stickymoe.experiments.formatting import percent, times

_STICKIER = 0.2
_FEW = 256
_MORE_LOADS = 1.005


class Answer(NamedTuple):
    """One question; `word` is its short name in the terminal."""

    word: str
    question: str
    answer: str


def answers(found: Diagnosis) -> list[Answer]:
    """Return every question that this trace can answer, the most asked first."""
    rows: list[tuple[str, str, Callable[[Diagnosis], str]]] = [
        ("hit rate", "How good is the budget?", _budget),
        ("verdict", "Is it the policy or the working set?", lambda found: found.verdict.sentence),
        ("policy", "Which policy?", _policy),
        ("sizes", "Which budget for 50, 80, 90, 95 %?", _targets),
        ("knee", "Where is the knee?", _knee),
        ("next", "What does more cache bring?", _next),
        ("layers", "Which layers suffer?", _layers),
        ("phases", "Prefill or decode?", _phases),
        ("start", "Cold start or steady state?", _start),
        ("locality", "Skew or locality?", _locality),
        ("pays", "What would pay?", _remedies),
        ("time", "What does it cost in time?", _time),
        ("sticky", "What would a router trained for locality be worth?", _sticky),
        ("device", "Does the device agree?", _device),
    ]
    said = [Answer(word, question, answer(found)) for word, question, answer in rows]
    return [each for each in said if each.answer]


def cautions(found: Diagnosis) -> list[str]:
    """Return what to know before trusting the numbers."""
    facts, said = found.facts, []
    if facts.num_experts_from == "largest id + 1":
        said.append(
            f"the file does not say how many experts a layer has; {facts.num_experts}, the largest id + 1, was taken; "
            "give --num-experts if it is more"
        )
    if found.cliff is not None:
        said.append(found.cliff)
    if found.timing is not None and found.timing.warning is not None:
        said.append(found.timing.warning)
    if facts.tokens < _FEW:
        said.append(f"{facts.tokens} tokens are few, rates of a longer trace may differ")
    return said


def _budget(found: Diagnosis) -> str:
    lru, belady, best = found.result("lru"), found.result("belady"), best_online(found.policies)
    better = "" if best.policy == "lru" else f", {best.label} {percent(best.hit_rate, 1)}"
    return (
        f"LRU {percent(lru.hit_rate, 1)}{better}, Belady {percent(belady.hit_rate, 1)}; "
        f"LRU: {loads(lru.loads_per_token, lru.bytes_per_token)}"
    )


def _policy(found: Diagnosis) -> str:
    best = best_online(found.policies)
    if best.gap_captured is None:
        return "any: foresight itself is less than half a point better than LRU"
    if best.policy == "lru":
        return "LRU: no policy without foresight does better"
    change = best.hit_rate - found.result("lru").hit_rate
    return f"{best.label}, {points(change)} over LRU, captures {percent(best.gap_captured)} of the gap to Belady"


def _targets(found: Diagnosis) -> str:
    parts = []
    for target in found.targets:
        if target.slots is not None:
            inside = "" if target.total_bytes is None else f" ({size(target.total_bytes)})"
            parts.append(f"{percent(target.hit_rate)} with {target.slots:,}{inside}")
    never = [f"{100 * target.hit_rate:.0f}" for target in found.targets if target.slots is None]
    if never:
        parts.append(f"{', '.join(never)} % never (at most {percent(found.curve('lru').hit_rates[-1], 1)})")
    return "slots for LRU: " + ", ".join(parts)


def _knee(found: Diagnosis) -> str:
    rate = found.curve("lru").at(found.knee)
    place = "above" if found.budget.slots > found.knee else "below" if found.budget.slots < found.knee else "at"
    return f"{slots(found.budget, found.knee)}, LRU {percent(rate, 1)}; the budget is {place} it"


def _next(found: Diagnosis) -> str:
    step = found.next_step
    if step is None:
        return "nothing: every expert fits"
    added = step.slots - found.budget.slots
    what = f"{added:,} more slots" if step.added_bytes is None else f"{size(step.added_bytes)} more ({added:,} slots)"
    return f"{what}: {points(step.gain)}, {step.saved_per_token:.1f} loads a token fewer"


def _layers(found: Diagnosis) -> str:
    known = [each.lru for each in found.layers if each.lru is not None]
    if len(known) < 2:
        return ""
    worst = ", ".join(f"{each.name} ({percent(each.lru)})" for each in worst_layers(found.layers))
    return f"worst under LRU {worst}; best {percent(max(known))}, median {percent(sorted(known)[len(known) // 2])}"


def _phases(found: Diagnosis) -> str:
    rates = ", ".join(
        f"{each.phase} {percent(each.lru, 1)} (Belady {percent(each.belady, 1)})" for each in found.phases
    )
    misses = " and ".join(f"{each.misses_per_token:.1f}" for each in found.phases)
    return f"{rates}; {misses} misses a token" if found.phases else ""


def _start(found: Diagnosis) -> str:
    warm = found.warm_up
    if warm is None:
        return ""
    return (
        f"{percent(warm.cumulative, 1)} cold start included, {percent(warm.steady, 1)} in second halves; "
        f"warm after {warm.warm_after} tokens"
    )


def _locality(found: Diagnosis) -> str:
    seen = found.locality
    return (
        f"{SAID[seen.verdict]}: {percent(seen.chance)} by chance, {percent(seen.shuffled, 1)} shuffled, "
        f"{percent(seen.lru, 1)} in order"
    )


def _remedies(found: Diagnosis) -> str:
    best: dict[str, Remedy] = {}
    for each in found.remedies:
        if not each.bound and (each.kind not in best or each.gain > best[each.kind].gain):
            best[each.kind] = each
    paying = [each.kind for each in best.values() if each.pays]
    tried = ", ".join(f"{kind} {_gain(each)}" for kind, each in best.items())
    return f"{', '.join(paying) or 'nothing tried'} (points over LRU: {tried})" if best else ""


def _gain(remedy: Remedy) -> str:
    more = "" if remedy.loads is None or remedy.loads <= _MORE_LOADS else f" at {times(remedy.loads)} the loads"
    return points(remedy.gain).removesuffix(" points") + more


def _time(found: Diagnosis) -> str:
    timing = found.timing
    if timing is None:
        return ""
    lru = timing.rows[0]
    gib = "" if timing.ms_saved_per_gib is None else f"; the next GiB saves {timing.ms_saved_per_gib:.1f} ms"
    return (
        f"{lru.ms_per_token:.0f} ms a token predicted ({lru.tokens_per_second:.2f}/s), "
        f"{lru.overlapped_ms_per_token:.0f} ms with loads hidden{gib}"
    )


def _sticky(found: Diagnosis) -> str:
    model = found.stickiness
    if model is None:
        return ""
    wanted = min(model.overlaps[-1], model.measured_overlap + _STICKIER)
    change = model.at(wanted) - model.predicted
    return (
        f"model: overlap {model.measured_overlap:.2f} → {wanted:.2f} brings {points(change)} "
        f"(here it says {percent(model.predicted)}, measured {percent(model.measured)})"
    )


def _device(found: Diagnosis) -> str:
    seen = found.device
    if seen is None:
        return ""
    ahead = f", {percent(seen.prefetched, 1)} by prefetch" if seen.prefetched else ""
    told = f"hit {percent(seen.hit_rate, 1)}{ahead}, LRU replayed alike {percent(seen.replayed, 1)}"
    if seen.decode_hit_rate is not None:
        told += f"; in decode {percent(seen.decode_hit_rate, 1)} and {percent(seen.decode_replayed, 1)}"
    return told + (": they agree" if seen.agrees else ": not this budget or policy")
