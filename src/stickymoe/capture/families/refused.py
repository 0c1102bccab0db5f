"""Families that cannot be captured, with the reason."""

from __future__ import annotations

from stickymoe.capture.families.family import Family


class RefusedFamily(Family):
    """Says why.

    Args:
        name: transformers' name of the family.
        reason: To be read after a colon.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.refused = reason
