"""The experts of one layer, and the layer that puts a router in front of them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.integrations.moe import use_experts_implementation

from stickymoe.model.config import StickyMoEConfig
from stickymoe.model.dispatch import collect, dispatch, layout_by_expert, sum_over_slots
from stickymoe.model.router import RouterDecision
from stickymoe.model.routers import ROUTERS


# The decorator lets `model.set_experts_implementation(name)` swap in any implementation registered with transformers
# (grouped_mm, batched_mm, an offloading one). Left alone, `forward` below runs.
@use_experts_implementation(has_gate=False, has_bias=True)
class Experts(nn.Module):
    """N two-layer GELU networks, kept as stacked tensors."""

    def __init__(self, config: StickyMoEConfig) -> None:
        """Create the stacked weights: up (experts, width, hidden), down (experts, hidden, width), and their biases."""
        super().__init__()
        experts, hidden, width = config.num_experts, config.hidden_size, config.expert_intermediate_size
        self.num_experts = experts
        self.up_proj = nn.Parameter(torch.empty(experts, width, hidden))
        self.up_proj_bias = nn.Parameter(torch.empty(experts, width))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width))
        self.down_proj_bias = nn.Parameter(torch.empty(experts, hidden))
        self.act_fn = nn.GELU()

    def forward(
        self,
        hidden_states: Float[Tensor, "tokens hidden"],
        top_k_index: Int[Tensor, "tokens top_k"],
        top_k_weights: Float[Tensor, "tokens top_k"],
    ) -> Float[Tensor, "tokens hidden"]:
        """Return the weighted sum of the chosen experts' outputs.

            y[t] = sum over slots j of  w[t, j] * expert_{e[t, j]}(x[t])

        Every expert runs once, on the rows that chose it, taken side by side from the tokens sorted by expert.

        Source: Sticky Routing, eq. 5.
        """
        output: Tensor = self._run_sorted(hidden_states, top_k_index, top_k_weights)
        return output

    # Compiled, the sizes below would ask for another compilation at every new routing; grouped_mm does not
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_sorted(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        slots, rows, sizes = layout_by_expert(top_k_index, self.num_experts)
        # unbind, not [e]: its backward stacks the gradients once instead of adding N tensors of full size
        parts = zip(
            torch.split(dispatch(hidden_states, slots, rows), sizes),
            self.up_proj.unbind(),
            self.up_proj_bias.unbind(),
            self.down_proj.unbind(),
            self.down_proj_bias.unbind(),
            strict=True,
        )
        outputs = torch.cat(
            [linear(self.act_fn(linear(x, up, up_bias)), down, bias) for x, up, up_bias, down, bias in parts]
        )
        by_slot = collect(outputs, slots)
        return sum_over_slots(by_slot * top_k_weights.unsqueeze(-1).to(by_slot.dtype))


class MoELayer(nn.Module):
    """Stands where a dense transformer has its feed-forward network: a router and its experts."""

    experts: Experts

    def __init__(self, config: StickyMoEConfig, pool: Experts | None = None) -> None:
        """Create the router named by `config.router_type` and the experts; those of `pool` are its owner's."""
        super().__init__()
        self.router = ROUTERS[config.router_type](config)
        self.reads_attended = config.router_input == "attended"
        if pool is None:
            self.experts = Experts(config)
        else:
            # Not registered here: a shared pool is counted, saved and moved once, by the model that holds it
            object.__setattr__(self, "experts", pool)

    def forward(
        self,
        hidden_states: Float[Tensor, "batch seq hidden"],
        context: Any = None,
        attended: Float[Tensor, "batch seq hidden"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq hidden"], RouterDecision]:
        """Return the experts' weighted output and the router's decision.

        Args:
            hidden_states: What the experts work on.
            context: For routers that look at more than their input.
            attended: What the router reads instead, where the config says so.
        """
        router_input = attended if self.reads_attended else hidden_states
        decision: RouterDecision = self.router(router_input, *(() if context is None else (context,)))
        output = self.experts(
            hidden_states.flatten(0, 1), decision.expert_ids.flatten(0, 1), decision.expert_weights.flatten(0, 1)
        )
        return output.view_as(hidden_states), decision
