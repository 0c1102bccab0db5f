"""The collapse alarm: a warning for every expert that hardly gets any token for many steps."""

from __future__ import annotations

import logging

import numpy as np

log = logging.getLogger(__name__)


class CollapseAlarm:
    """Counts, expert by expert, consecutive steps with too small a share of the tokens.

    It warns once when an expert has starved for `steps` steps, and again only after a recovery. Counting starts anew
    when a run is resumed.

    Args:
        share: Below this share of a step's tokens an expert starves.
        steps: So many starved steps in a row are a collapse.
    """

    def __init__(self, share: float, steps: int) -> None:
        self.share = share
        self.steps = steps
        self._starved = np.zeros((0, 0), dtype=np.int64)

    def update(self, step: int, load: np.ndarray, tokens: float) -> list[tuple[int, int]]:
        """Take a step in and warn of experts whose collapse it completes.

        Args:
            step: Number of the step.
            load: (layers, experts): how many tokens each expert served.
            tokens: Real tokens of the step; with none the step says nothing and is passed over.

        Returns:
            (layer, expert) of each warning, counted from 0.
        """
        if tokens == 0:
            return []
        if self._starved.shape != load.shape:
            self._starved = np.zeros(load.shape, dtype=np.int64)
        self._starved = np.where(load < self.share * tokens, self._starved + 1, 0)
        collapsed = [(int(layer), int(expert)) for layer, expert in np.argwhere(self._starved == self.steps)]
        for layer, expert in collapsed:
            log.warning(
                "expert %d of layer %d has collapsed: under %g %% of the tokens in each of the %d steps up to step %d; "
                "raise objective.load_balancing",
                expert,
                layer,
                100 * self.share,
                self.steps,
                step,
            )
        return collapsed
