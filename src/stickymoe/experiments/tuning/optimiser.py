"""AdamW for parameters of any floating-point type, with a float32 copy where the type is too coarse for small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class MasterAdamW(torch.optim.Optimizer):
    """AdamW that keeps float32 masters of bfloat16 and float16 parameters.

    A router in bfloat16 moves by steps of some 0.4 % of a weight, a learning rate of 5e-5 asks for less: without a
    master most steps would round to nothing. The parameter is always the master rounded; float32 parameters are their
    own masters.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate.
        betas: Decay of the running means of gradient and squared gradient.
        eps: Added to the root of the latter.
        weight_decay: Share of a weight, times the learning rate, taken off each step.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load, with masters and means in float32; torch by itself turns them into the parameters' type."""
        super().load_state_dict(state_dict)
        saved = state_dict["state"]
        places = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(places, parameters, strict=True):
            for name in ("master", "mean", "square"):
                if number in saved and name in saved[number]:
                    self.state[parameter][name] = saved[number][name].to(parameter.device, torch.float32, copy=True)

    def _move(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["square"] = torch.zeros_like(parameter, dtype=torch.float32)
            if torch.finfo(parameter.dtype).bits < 32:
                state["master"] = parameter.detach().float()
        state["step"] += 1
        assert parameter.grad is not None
        gradient, (first, second) = parameter.grad.float(), group["betas"]
        mean, square = state["mean"], state["square"]
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        master = state.get("master", parameter)
        master.mul_(1 - group["lr"] * group["weight_decay"])
        spread = (square / (1 - second ** state["step"])).sqrt_().add_(group["eps"])
        master.addcdiv_(mean, spread, value=-group["lr"] / (1 - first ** state["step"]))
        if master is not parameter:
            parameter.copy_(master)
