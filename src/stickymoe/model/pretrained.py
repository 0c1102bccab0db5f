"""What transformers needs to know to initialise, load and shard the model."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init

from stickymoe.model.attention import ResidualProjection
from stickymoe.model.checkpoint import checkpoint_errors, load_report, require_its_own_weights
from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.experts import Experts
from stickymoe.model.router import Router


class StickyMoEPreTrainedModel(PreTrainedModel):
    """Base of the body and of the language model: initialisation, loading, capabilities."""

    config: StickyMoEConfig
    config_class = StickyMoEConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DecoderLayer"]  # noqa: RUF012 - transformers' contract
    _supports_sdpa = True

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """Load a checkpoint folder or hub repository; arguments as in transformers.

        Raises:
            CheckpointError: It is missing, damaged, of another architecture or shape, or lacks weights.
        """
        place = pretrained_model_name_or_path
        ignore = kwargs.pop("ignore_mismatched_sizes", False)
        with checkpoint_errors(place), load_report(shown=ignore):
            loaded: Any = super().from_pretrained(
                place, *args, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
            )
            model, info = loaded
            require_its_own_weights(place, info, ignore)
        return (model, info) if output_loading_info else model

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        """Default to our own sorted dispatch ("eager" in transformers' words), which autocast reaches."""
        return super().get_correct_experts_implementation(requested_experts or "eager")

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)  # type: ignore[no-untyped-call]
        std = self.config.initializer_range
        residual_std = std / (2 * self.config.num_hidden_layers) ** 0.5
        if isinstance(module, Router):
            module.init_weights(std)
        elif isinstance(module, Experts):
            init.normal_(module.up_proj, std=std)
            init.normal_(module.down_proj, std=residual_std)
            init.zeros_(module.up_proj_bias)
            init.zeros_(module.down_proj_bias)
        elif isinstance(module, ResidualProjection):
            init.normal_(module.weight, std=residual_std)
