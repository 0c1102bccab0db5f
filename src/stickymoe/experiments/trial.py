"""A model of any architecture tried on a few tokens before it is trained: it fits, runs, and keeps documents apart."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stickymoe.capture import CapturedPass, capture_routing
from stickymoe.capture.opening.memory import free_bytes
from stickymoe.core.errors import SettingError, StickyMoEError
from stickymoe.experiments.architecture import no_model

# Weights, their gradients and AdamW's two moments, all in float32
BYTES_PER_PARAMETER = 16
_HALF = 4
_LEAK = 1e-3


def require_memory(empty: PreTrainedModel) -> None:
    """Refuse to train a model that is larger than the memory there is.

    Args:
        empty: The model without weights.

    Raises:
        SettingError: It is; the message has both sides in GiB.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parameters = sum(parameter.numel() for parameter in empty.parameters())
    needed, free = parameters * BYTES_PER_PARAMETER, free_bytes(device)
    if free is not None and needed > free:
        raise SettingError(
            f"a model of {parameters / 1e6:,.0f} M parameters needs {needed / 2**30:,.1f} GiB to be trained, and "
            f"{free / 2**30:,.1f} GiB are free; give smaller sizes in [model], keys left out have the class' defaults"
        )


def require_running(model: PreTrainedModel, *, documents: bool) -> None:
    """Run a few tokens through the model with its routing captured; draws no random numbers.

    Args:
        model: The model, with weights.
        documents: Whether attention is to stop at document borders.

    Raises:
        SettingError: It cannot run, or its attention runs on across borders where that is not wanted.
        CaptureError: Its routing cannot be captured.
    """
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = torch.arange(2 * _HALF, device=model.device).remainder(vocabulary)[None]
    was_training = model.training
    model.train(False)
    try:
        with torch.no_grad(), capture_routing(model, gradients=False) as capture:
            plain = _logits(model, ids)
            _require_different_experts(capture.last)
            if documents and _leaks(model, ids, plain):
                kind = model.config.model_type
                raise SettingError.broken(
                    "data.respect_documents",
                    f"false with {kind}, whose attention does not stop at document borders",
                    True,
                    "add objective.reset_at_documents=true to end pairs there all the same",
                )
    except StickyMoEError:
        raise
    except Exception as error:  # shapes that do not go together fail wherever they meet
        raise no_model(model.config.model_type, error) from error
    finally:
        model.train(was_training)


def _require_different_experts(seen: CapturedPass) -> None:
    """Refuse a model that gives a token one expert twice, as by a table that only pretrained weights fill."""
    routing = seen.routing
    for name, chosen in zip(seen.layer_names, routing.expert_ids, strict=True):
        ordered = chosen.sort(dim=-1).values
        if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
            raise SettingError(
                f"layer {name} gives a token the same expert twice: its table of experts comes with pretrained "
                "weights; leave such layers out (as by model.mlp_layer_types), or go on from model.pretrained"
            )


def _leaks(model: PreTrainedModel, ids: Tensor, plain: Tensor) -> bool:
    """Tell whether the second of two documents in a row feels what the first one says."""
    positions = torch.arange(2 * _HALF, device=ids.device).remainder(_HALF)[None]
    other = torch.cat([ids[:, :_HALF].flip(1), ids[:, _HALF:]], dim=1)
    first, second = (_logits(model, row, position_ids=positions)[:, _HALF:] for row in (ids, other))
    return bool((first - second).abs().max() > _LEAK * plain.std())


def _logits(model: PreTrainedModel, ids: Tensor, **given: Tensor) -> Tensor:
    logits: Tensor = model(input_ids=ids, use_cache=False, **given).logits.float()
    return logits
