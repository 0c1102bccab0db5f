"""Models without an adapter: generic hooks are tried on a few tokens, and held against the model's own output."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from stickymoe.capture.capture import capture_routing
from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.families import UnknownFamily
from stickymoe.capture.families.unknown import HOW_TO
from stickymoe.core.errors import CaptureError

_TOKENS = 16


def require_captured(model: PreTrainedModel) -> None:
    """Refuse a model of a family without an adapter whose routing generic hooks do not take right.

    A few tokens are run without and with the hooks: the outputs must agree (bit by bit on a CPU; a GPU adds up in any
    order), the experts' weights must be a known function of the router's output, and each token's experts must be
    different experts of its layer.

    Raises:
        CaptureError: They do not; the message says how to add an adapter.
    """
    stacks = find_stacks(model)
    if not any(isinstance(layer.family, UnknownFamily) for _, layers in stacks.values() for layer in layers):
        return
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = torch.arange(_TOKENS, device=model.device).mul(7).remainder(vocabulary)[None]
    training = model.training
    model.train(False)
    try:
        with torch.no_grad():
            plain = model(input_ids=ids, use_cache=False).logits
            with capture_routing(model, gradients=False) as capture:
                hooked = model(input_ids=ids, use_cache=False).logits
    finally:
        model.train(training)
    routing = capture.routing
    near = 0.0 if model.device.type == "cpu" else 1e-2
    if not torch.allclose(plain, hooked, rtol=near, atol=near):
        raise _refusal(model, "with hooks attached its output changes")
    for gates, chosen in zip(routing.gate_probs, routing.expert_ids, strict=True):
        inside = bool(((chosen >= 0) & (chosen < gates.shape[-1])).all())
        ordered = chosen.sort(dim=-1).values
        if not inside or bool((ordered[..., 1:] == ordered[..., :-1]).any()):
            raise _refusal(model, "its experts receive ids that are not different experts of a layer")


def _refusal(model: PreTrainedModel, reason: str) -> CaptureError:
    return CaptureError(f"{type(model).__name__} has no adapter, and generic hooks do not fit: {reason}; {HOW_TO}")
