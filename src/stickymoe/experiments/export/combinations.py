"""Which models llama.cpp computes as they were trained, and which it would silently turn into others.

Where llama.cpp has one form of a layer and transformers leaves the choice to the config, a conversion of the other form
succeeds and the model then says something else. What stands here was compared (benchmarks/gguf_check.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedConfig

from stickymoe.core.errors import SettingError
from stickymoe.model import StickyMoEConfig

# A rule: the config -> what llama.cpp would do otherwise; None where it does the same
Rule = Callable[[Any], str | None]


def _weights_are(renormalised: bool) -> Rule:
    """Return the rule for an engine that always, or never, divides the chosen experts' weights by their sum."""

    def rule(config: Any) -> str | None:
        if bool(config.norm_topk_prob) is renormalised:
            return None
        does = "always" if renormalised else "never"
        return f"it {does} divides the weights of the chosen experts by their sum, norm_topk_prob is {not renormalised}"

    return rule


def _silu(config: Any) -> str | None:
    if config.hidden_act in ("silu", "swish"):
        return None
    return f"its experts are gated by silu, hidden_act is {config.hidden_act!r}"


def _untied(config: Any) -> str | None:
    return (
        "it asks for an output matrix of its own, tie_word_embeddings is true" if config.tie_word_embeddings else None
    )


def _own_keys(config: Any) -> str | None:
    if config.num_key_value_heads == config.num_attention_heads:
        return None
    return f"every head has keys of its own there, num_key_value_heads is {config.num_key_value_heads}"


def _no_window(config: Any) -> str | None:
    window = config.sliding_window if getattr(config, "use_sliding_window", True) else None
    return None if window is None else f"its attention sees the whole context, sliding_window is {window}"


def _all_sparse(config: Any) -> str | None:
    dense = bool(config.mlp_only_layers) or config.decoder_sparse_step != 1
    return "all its layers have experts, mlp_only_layers or decoder_sparse_step make some dense" if dense else None


def _rotates_in_pairs(config: Any) -> str | None:
    return None if config.rope_interleave else "it rotates neighbouring numbers of a head, rope_interleave is false"


CHECKED: dict[str, tuple[Rule, ...]] = {
    "deepseek_v3": (_silu, _rotates_in_pairs),
    "granitemoe": (_silu,),
    "mixtral": (_silu, _no_window),
    "olmoe": (_silu, _weights_are(renormalised=False), _untied, _own_keys),
    "qwen2_moe": (_silu, _weights_are(renormalised=False), _no_window, _all_sparse),
    "qwen3_moe": (_silu, _weights_are(renormalised=True), _no_window, _all_sparse),
}


# What the converter looks for in config.json and transformers, which knows it from the class, does not write there
UNSAID: dict[str, dict[str, Any]] = {"deepseek_v3": {"scoring_func": "sigmoid"}}


def require_convertible(config: PreTrainedConfig, *, unchecked: bool = False) -> None:
    """Refuse a model that llama.cpp would compute otherwise, or of a family that nobody has compared.

    Args:
        config: The model's.
        unchecked: Whether to let families pass that were not compared.

    Raises:
        SettingError: The message says what would differ.
    """
    kind = config.model_type
    if isinstance(config, StickyMoEConfig):
        raise SettingError(
            "the reference model (learned positions, LayerNorm, GELU experts) has no architecture in GGUF; train "
            "[model] architecture = 'mixtral', as the recipe mixtral-small does"
        )
    if kind not in CHECKED:
        if unchecked:
            return
        known = ", ".join(sorted(CHECKED))
        raise SettingError.broken(
            "model", f"of a family whose conversion was compared ({known})", kind, "add --unchecked to convert anyhow"
        )
    for rule in CHECKED[kind]:
        if difference := rule(config):
            raise SettingError(
                f"llama.cpp would turn this {kind} into another model: {difference}; it is not converted"
            )
