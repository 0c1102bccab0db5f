"""The terms an objective can weigh, by name: a new one is its own file and its line here."""

from __future__ import annotations

from stickymoe.losses import (
    anchor,
    consistency,
    cross_layer,
    load_balancing,
    reuse,
    router_z,
    symmetric_kl,
    trust,
    working_set,
)
from stickymoe.losses.term import Term

TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        consistency.TERM,
        anchor.TERM,
        load_balancing.TERM,
        router_z.TERM,
        cross_layer.TERM,
        reuse.TERM,
        symmetric_kl.SMOOTHNESS,
        symmetric_kl.LAG,
        working_set.TERM,
        trust.TERM,
    )
}
