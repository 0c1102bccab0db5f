"""gemma4 and diffusion_gemma: what they declare as router logits are probabilities."""

from __future__ import annotations

from torch import nn

from stickymoe.capture.families.family import Family


class Gemma4Family(Family):
    """Listens to the projection inside the router, where logits are logits still."""

    note: str = "declares probabilities as logits; taken from the projection inside the router instead"

    def source(self, router: nn.Module) -> nn.Module:
        """Return the projection."""
        return router.get_submodule("proj")
