"""deepseek_v4: the first MoE layers choose by a table of token ids."""

from __future__ import annotations

from typing import ClassVar

from stickymoe.capture.families.own_scores import OwnScoresFamily


class DeepseekV4Family(OwnScoresFamily):
    """Takes in the hash layers, which the model does not declare, and marks them as fixed."""

    note: str = "hash layers are captured too, as fixed: training moves their weights, not their choice"
    undeclared: ClassVar[frozenset[str]] = frozenset({"DeepseekV4HashRouter"})
    fixed_routers: ClassVar[frozenset[str]] = frozenset({"DeepseekV4HashRouter"})
