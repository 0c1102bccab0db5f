"""The registry names every term once, as the design pages do."""

import stickymoe.losses as losses
from stickymoe.losses import TERMS


def test_every_term_has_its_public_function():
    assert list(TERMS) == [
        "consistency", "anchor", "load_balancing", "router_z", "cross_layer", "reuse",
        "smoothness", "lag", "working_set", "trust",
    ]  # fmt: skip
    for name, term in TERMS.items():
        assert term.name == name
        assert callable(getattr(losses, f"{name}_loss"))


def test_only_terms_that_keep_routing_healthy_escape_the_warm_up():
    assert {name for name, term in TERMS.items() if not term.locality} == {"load_balancing", "router_z", "trust"}
