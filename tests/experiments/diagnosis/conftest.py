"""Small traces with known habits, and their diagnoses."""

import numpy as np
import pytest

LAYERS, EXPERTS, TOP_K = 3, 16, 2
FEW = ("fifo", "static")  # a policy is compiled before its first replay, which takes a while


def sticky_trace(*, sequences=4, tokens=60, stay=0.8, seed=0, **more):
    """Every expert of a token is kept with probability `stay`, else drawn anew; layer l draws from 4 + 4 l experts."""
    from stickymoe.traces import RoutingTrace

    random = np.random.default_rng(seed)
    ids = np.zeros((sequences * tokens, LAYERS, TOP_K), dtype=np.int64)
    for row in range(len(ids)):
        for layer in range(LAYERS):
            kept = [] if row % tokens == 0 else [e for e in ids[row - 1, layer].tolist() if random.random() < stay]
            others = [e for e in range(4 + 4 * layer) if e not in kept]
            drawn = random.choice(others, TOP_K - len(kept), replace=False).tolist()
            ids[row, layer] = kept + drawn
    return RoutingTrace(ids, np.repeat(np.arange(sequences), tokens), EXPERTS, **more)


def rich_trace():
    """A trace that knows everything: weights, phases, passes, sizes, what was resident."""
    plain = sticky_trace(sequences=3, tokens=50)
    rows = plain.num_tokens
    place = np.arange(rows) % 50
    random = np.random.default_rng(1)
    high = random.uniform(0.5, 1.0, (rows, LAYERS, 1))
    return sticky_trace(
        sequences=3,
        tokens=50,
        expert_weights=np.concatenate([high, 1 - high], axis=2),
        phases=(place >= 20).astype(np.uint8),
        event_ids=np.maximum(place, 19),
        layer_names=("1", "2", "mtp0"),
        expert_bytes=np.array([2**20, 2**20, 2**21]),
        resident=random.integers(0, 2, plain.expert_ids.shape),
        provenance={"model": "toy <b>MoE</b>", "num_experts_from": "declared"},
    )


@pytest.fixture(scope="session")
def plain_trace():
    return sticky_trace()


@pytest.fixture(scope="session")
def full_trace():
    return rich_trace()


@pytest.fixture(scope="session")
def plain_diagnosis(plain_trace):
    from stickymoe.experiments.diagnosis.inputs import diagnose_input

    return diagnose_input(plain_trace, "plain.npz", budget={"slots": 4}, policies=FEW)


@pytest.fixture(scope="session")
def full_diagnosis(full_trace):
    from stickymoe.experiments.diagnosis.inputs import diagnose_input

    return diagnose_input(full_trace, "full <x>.csv", budget={"slots": 4}, policies=FEW)
