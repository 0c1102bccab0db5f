"""`open_model`: from a checkpoint's name to a model whose routing can be captured, or one line that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stickymoe.capture.opening.configuration import outline, read_config
from stickymoe.capture.opening.memory import require_room
from stickymoe.capture.opening.place import find_place
from stickymoe.capture.opening.tokenizer import load_tokenizer
from stickymoe.capture.opening.verified import require_captured
from stickymoe.capture.opening.weights import Weights, read_weights
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.model.checkpoint import checkpoint_errors, load_report, require_its_own_weights
from stickymoe.model.quiet import without_progress_bars

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model that is loaded and whose routing can be captured.

    Attributes:
        name: What the user called it.
        model: The model, on its device.
        tokenizer: Its tokenizer; every id is one of the model's.
        folder: Where the checkpoint lies.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path

    @property
    def fill(self) -> int:
        """A token to pad with; what it is does not matter where it is masked."""
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if isinstance(token, int):
                return token
        return 0


def open_model(
    name: str | Path,
    *,
    dtype: torch.dtype | str | None = None,
    device: torch.device | str | None = None,
    for_training: bool = False,
) -> OpenedModel:
    """Open a Mixture-of-Experts model of any family, to record its routing or to tune it.

        opened = open_model("Qwen3-30B-A3B")
        with capture_routing(opened.model) as capture:
            opened.model(**opened.tokenizer("Hello", return_tensors="pt"))

    Everything that can be wrong is looked for before weights are loaded, and no code that comes with a checkpoint is
    ever run: where transformers has the class itself, that is used.

    Args:
        name: A folder with a saved model, a run folder of `stickymoe train`, or a name on the hub.
        dtype: Of the weights: a torch type, its name, or "auto", as saved. "auto" if not given; float32 for training.
        device: Where to; the first GPU if there is one, else the CPU.
        for_training: Whether the model comes in training mode.

    Returns:
        The model, in evaluation mode unless it is for training, with its tokenizer.

    Raises:
        CheckpointError: Nothing is there, something is missing, damaged or does not fit together, the model needs code
            of its own, or the device has too little memory.
        CaptureError: The model is dense, or its routing cannot be captured.
        SettingError: There is no such type or device.
    """
    wanted = _dtype("float32" if dtype is None and for_training else dtype)
    target = _device(device)
    place = find_place(name)
    config = read_config(place.folder)
    outline(config, place.folder)
    tokenizer = load_tokenizer(place.folder, config)
    place.fetch_weights()
    weights = read_weights(place.folder)
    _require_room(place.name, weights, config, wanted, target)
    model = _loaded(place.folder, config, wanted, target)
    require_captured(model)
    model.train(for_training)
    return OpenedModel(place.name, model, tokenizer, place.folder)


def _loaded(folder: Path, config: PreTrainedConfig, dtype: torch.dtype | None, device: torch.device) -> PreTrainedModel:
    placed: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    with checkpoint_errors(folder), load_report(shown=False), without_progress_bars():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype="auto" if dtype is None else dtype,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **placed,
        )
    model, info = loaded
    # A checkpoint may hold more than its language model: towers for images, heads that predict further ahead
    require_its_own_weights(folder, info | {"unexpected_keys": []}, ignore_mismatched_sizes=False)
    opened: PreTrainedModel = model
    return opened


def _require_room(
    name: str, weights: Weights, config: PreTrainedConfig, dtype: torch.dtype | None, device: torch.device
) -> None:
    """Refuse a device with too little memory; quantised weights are counted as they are stored."""
    quantised = getattr(config, "quantization_config", None) is not None
    becomes = None if quantised else dtype or getattr(config, "dtype", None) or weights.dtype
    told = "quantised form" if quantised else str(becomes or "their own types").removeprefix("torch.")
    require_room(name, weights.bytes_in(becomes), told, device)


def _dtype(asked: torch.dtype | str | None) -> torch.dtype | None:
    if asked is None or asked == "auto":
        return None
    if isinstance(asked, torch.dtype):
        return asked
    require_one_of("dtype", asked, ["auto", *DTYPES])
    return DTYPES[asked]


def _device(asked: torch.device | str | None) -> torch.device:
    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise SettingError.broken("device", "one that this machine has", str(asked), reason) from error
    return device
