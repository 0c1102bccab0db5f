"""Model families by transformers' name: how their routers and experts are read."""

from __future__ import annotations

from torch import nn

from stickymoe.capture.families.capacity import NllbMoeFamily, SwitchFamily
from stickymoe.capture.families.common import COMMON, NOTES
from stickymoe.capture.families.deepseek_v4 import DeepseekV4Family
from stickymoe.capture.families.ernie4_5_vl_moe import ErnieVLFamily
from stickymoe.capture.families.family import Decision, Family
from stickymoe.capture.families.gemma4 import Gemma4Family
from stickymoe.capture.families.jetmoe import JetMoeFamily
from stickymoe.capture.families.llama4 import Llama4Family
from stickymoe.capture.families.null_experts import LongcatFlashFamily, ZayaFamily
from stickymoe.capture.families.own import OwnFamily
from stickymoe.capture.families.own_scores import Cohere2MoeFamily, OwnScoresFamily
from stickymoe.capture.families.refused import RefusedFamily
from stickymoe.capture.families.unknown import UnknownFamily

__all__ = ["FAMILIES", "Decision", "Family", "OwnFamily", "UnknownFamily", "family_of"]

_SPECIAL: list[Family] = [
    Cohere2MoeFamily("cohere2_moe"),
    DeepseekV4Family("deepseek_v4", "sqrtsoftplus"),
    ErnieVLFamily("ernie4_5_vl_moe"),
    Gemma4Family("diffusion_gemma"),
    Gemma4Family("gemma4"),
    JetMoeFamily("jetmoe"),
    Llama4Family("llama4"),
    LongcatFlashFamily("longcat_flash"),
    NllbMoeFamily("nllb_moe"),
    OwnScoresFamily("inkling2", "sigmoid"),
    OwnScoresFamily(
        "inkling2_loop", "sigmoid", "looped layers take a turn a loop, each a layer of its own: 1, 1#1, 1#2"
    ),
    RefusedFamily("doge", "its routing mixes the scores of different tokens, so no token has experts of its own"),
    SwitchFamily("switch_transformers"),
    ZayaFamily("zaya"),
]
FAMILIES: dict[str, Family] = {
    **{name: Family(name, gate, NOTES.get(name, "")) for name, gate in COMMON.items()},
    **{family.name: family for family in _SPECIAL},
}


def family_of(module: nn.Module) -> str:
    """Return transformers' name of the family that a module's class belongs to; empty if it is not transformers'."""
    for kind in type(module).__mro__:  # sharding puts a class of its own in front
        if kind.__module__.startswith("transformers.models."):
            return kind.__module__.split(".")[2]
    return ""
