"""Boundary-aware: switching is free where a sentence or line begins, or where a document does."""

from __future__ import annotations

from stickymoe.experiments.variants.variant import Variant


def boundary(coefficient: float, weight: float = 0.0) -> Variant:
    """Consistency loss with `weight` on the pairs that enter a sentence or line. Source: section 6, limitations."""
    overrides = {"objective.consistency": coefficient, "objective.boundary_weight": weight}
    return Variant(f"boundary-{coefficient:g}", f"Boundary-aware λ={coefficient:g}", overrides)


def document_reset(coefficient: float) -> Variant:
    """Consistency loss whose pairs end with the document, also where attention does not."""
    overrides = {"objective.consistency": coefficient, "objective.reset_at_documents": True}
    return Variant(f"document-reset-{coefficient:g}", f"Document reset λ={coefficient:g}", overrides)


COEFFICIENTS = (0.1, 0.5)
BOUNDARIES = tuple(boundary(coefficient) for coefficient in COEFFICIENTS)
DOCUMENT_RESETS = tuple(document_reset(coefficient) for coefficient in COEFFICIENTS)
