"""What decides the paper's claims, written down before any result; docs/claims.md argues for each number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Shares and changes as fractions; docs/claims.md says what each means and why it is what it is."""

    harmless_change: float = 0.005
    strong_reduction: float = 0.49
    monotone_slack: float = 0.01
    negligible_reduction: float = 0.05
    window_reduction: float = 0.15
    excessive_cost: float = 0.028
    window_slack: float = 0.01
    moderate_cost: float = 0.01
    utilisation_share: float = 0.96
    tolerance_gap: float = 0.01
    first_layer_gap: float = 0.175
    one_seed_change: float = 0.01
    one_seed_rate: float = 0.02
    one_seed_reduction: float = 0.03
    one_seed_entropy: float = 0.005


THRESHOLDS = Thresholds()
