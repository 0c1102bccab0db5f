"""Configuration of the reference model, and the paper's presets.

`from __future__ import annotations` is left out on purpose: transformers validates the field types at run time.
"""

import dataclasses
import difflib
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import PretrainedConfig

from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.core.settings import nearest, require_at_least, require_one_of

# Sizes from section 5.2 of the paper; the exact parameter counts are in docs/tour.md.
PRESETS: dict[str, dict[str, Any]] = {
    "paper-small": {"hidden_size": 128, "expert_intermediate_size": 512},
    "paper-medium": {"hidden_size": 256, "expert_intermediate_size": 1024},
}


def _one_line_errors(cls: type[PretrainedConfig]) -> type[PretrainedConfig]:
    """Let the strict dataclass say in the house's words which field has the wrong type, and take 1 for 1.0."""
    set_checked = cls.__setattr__

    def set_field(self: PretrainedConfig, name: str, value: Any) -> None:
        field = cls.__dataclass_fields__.get(name)
        if field is not None and field.type in (float, float | None) and type(value) is int:
            value = float(value)
        try:
            set_checked(self, name, value)  # type: ignore[no-untyped-call]
        except StrictDataclassFieldValidationError as error:
            wanted = getattr(field, "type", None)
            rule = f"of type {wanted.__name__ if isinstance(wanted, type) else wanted}"
            raise SettingError.broken(f"model.{name}", rule, value) from error

    cls.__setattr__ = set_field  # type: ignore[method-assign]
    return cls


@_one_line_errors
@strict
class StickyMoEConfig(PretrainedConfig):  # type: ignore[no-untyped-call]
    """Shape of a GPT-2-style decoder in which every feed-forward network is a Mixture-of-Experts layer.

    Args:
        vocab_size: Rows of the (tied) embedding.
        hidden_size: Width of the residual stream; a multiple of `num_attention_heads`.
        num_hidden_layers: Decoder layers, each with one MoE layer.
        num_attention_heads: Heads a layer.
        expert_intermediate_size: Hidden width of one expert.
        num_experts: Experts a layer.
        num_experts_per_tok: Experts that serve one token (top-k), from 1 to `num_experts`. Equal to `num_experts`
            the layer is the dense control: every expert serves every token.
        max_position_embeddings: Longest document in tokens.
        router_type: Name of the router, see `stickymoe.model.ROUTERS`.
        router_window: Tokens whose experts have a bonus, for `hard_window` (2 if not given) and `hysteresis` (1).
        router_bonus: The bonus on their logits, for the same (10 and 1).
        router_recursive: Whether those experts are the ones that served, for the same; if not, the ones that would
            have without a bonus.
        router_span: Tokens that share a path, for `trajectory`; 0 (if not given) is the whole document.
        router_input: What learned routers read: `hidden`, the normed residual stream, or `attended`, the attended
            values before attention's output projection (Oracle-MoE, simplified).
        experts_shared: Which layers draw on one pool of experts: `none`, `all`, or `groups:K`, blocks of K layers each.
        norm_topk_prob: Whether the weights of the chosen experts are divided by their sum.
        dropout: Dropout probability after embedding, attention and experts, in [0, 1).
        initializer_range: Standard deviation of the initial weights; residual projections are scaled by 1/sqrt(2L).

    Raises:
        SettingError: A size is not positive or no integer, `num_experts_per_tok` exceeds `num_experts`, the width does
            not divide into heads, or the router is unknown.
    """

    model_type = "sticky_moe"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "last_hidden_state", "hidden_states", "routing"]

    vocab_size: int = 50257
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    expert_intermediate_size: int = 512
    num_experts: int = 4
    num_experts_per_tok: int = 2
    max_position_embeddings: int = 256
    router_type: str = "softmax"
    router_window: int | None = None
    router_bonus: float | None = None
    router_recursive: bool | None = None
    router_span: int | None = None
    router_input: str = "hidden"
    experts_shared: str = "none"
    norm_topk_prob: bool = True
    dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Check the shape before anything is allocated."""
        self._check()
        for name in kwargs:  # transformers keeps whatever else a checkpoint's config says, which lets misspellings pass
            if meant := difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.85):
                raise SettingError(f"model.{name} is no setting of the model; did you mean {meant[0]!r}?")
        super().__post_init__(**kwargs)  # type: ignore[no-untyped-call]

    def _check(self) -> None:
        sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "expert_intermediate_size")
        for name in (*sizes, "num_experts", "num_experts_per_tok", "max_position_embeddings"):
            require_at_least(f"model.{name}", getattr(self, name), 1)
        if self.num_experts_per_tok > self.num_experts:
            raise SettingError.broken(
                "model.num_experts_per_tok",
                f"<= model.num_experts ({self.num_experts})",
                self.num_experts_per_tok,
                "lower it or add experts",
            )
        if self.hidden_size % self.num_attention_heads:
            raise SettingError.broken(
                "model.hidden_size", f"a multiple of num_attention_heads ({self.num_attention_heads})", self.hidden_size
            )
        if not 0.0 <= self.dropout < 1.0:
            raise SettingError.broken("model.dropout", "in [0, 1)", self.dropout)
        for name in ("initializer_range", "layer_norm_eps"):
            if not getattr(self, name) > 0.0:
                raise SettingError.broken(f"model.{name}", "> 0", getattr(self, name))
        self._settle_router()
        _ = self.layers_per_pool

    @property
    def layers_per_pool(self) -> int:
        """How many layers draw on one pool of experts; 1 where each has its own."""
        words = {"none": 1, "all": self.num_hidden_layers}
        if self.experts_shared in words:
            return words[self.experts_shared]
        kind, _, size = self.experts_shared.partition(":")
        divisors = [size for size in range(2, self.num_hidden_layers) if self.num_hidden_layers % size == 0]
        if kind != "groups" or not size.isdecimal() or int(size) not in divisors:
            words_of_groups = "".join(f", groups:{size}" for size in divisors)
            rule = f"one of none, all{words_of_groups} with {self.num_hidden_layers} layers"
            raise SettingError.broken("model.experts_shared", rule, self.experts_shared)
        return int(size)

    def _settle_router(self) -> None:
        """Fill in the router's own settings and refuse those of another router."""
        from stickymoe.model.routers import ROUTER_SETTINGS, ROUTERS  # here, since routers are built from a config

        require_one_of("model.router_type", self.router_type, ROUTERS)
        router = ROUTERS[self.router_type]
        for name in ROUTER_SETTINGS:
            value = getattr(self, name)
            if value is None and name in router.settings:
                setattr(self, name, router.settings[name])
            elif value is not None and name not in router.settings:
                takers = ", ".join(other for other, kind in ROUTERS.items() if name in kind.settings)
                rule = f"left out with model.router_type {self.router_type!r}"
                raise SettingError.broken(f"model.{name}", rule, value, f"it is for {takers}")
        router.check(self)
        require_one_of("model.router_input", self.router_input, ("hidden", "attended"))
        if router.is_fixed and self.router_input != "hidden":
            rule = f"'hidden' with model.router_type {self.router_type!r}, which reads token ids alone"
            raise SettingError.broken("model.router_input", rule, self.router_input)

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a checkpoint's configuration, transformers' first step of loading.

        Raises:
            CheckpointError: It describes another architecture.
        """
        content, unused = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if content.get("model_type") != cls.model_type:
            raise CheckpointError(
                f"{pretrained_model_name_or_path} must hold a model of type {cls.model_type}, "
                f"got {content.get('model_type')!r}; load it with transformers' AutoModelForCausalLM"
            )
        return content, unused

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> "StickyMoEConfig":
        """Return the preset `paper-small` or `paper-medium`, with single fields replaced by `overrides`.

        Raises:
            SettingError: No preset or no field has this name.
        """
        require_one_of("model.preset", name, PRESETS)
        for field in overrides.keys() - {*cls.__dataclass_fields__, "attn_implementation", "experts_implementation"}:
            known = ", ".join(SETTINGS)
            raise SettingError(f"model.{field} is no setting of the model; {nearest(field, SETTINGS) or known}")
        return cls(**{**PRESETS[name], **overrides})


SETTINGS = tuple(
    field.name for field in dataclasses.fields(StickyMoEConfig) if field.name in StickyMoEConfig.__annotations__
)
