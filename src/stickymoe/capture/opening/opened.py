"""`open_model`: from a checkpoint's name to a model whose routing can be captured, or one line that says why not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from stickymoe.capture.opening.configuration import outline, read_config
from stickymoe.capture.opening.memory import require_room
from stickymoe.capture.opening.place import Place, find_place
from stickymoe.capture.opening.tokenizer import load_tokenizer
from stickymoe.capture.opening.verified import require_captured
from stickymoe.capture.opening.weights import read_weights
from stickymoe.core.errors import SettingError
from stickymoe.core.settings import require_one_of
from stickymoe.model.checkpoint import checkpoint_errors, load_report, require_its_own_weights
from stickymoe.model.quiet import without_progress_bars

REPACKS = "support_avx512bf16_for_cpu"  # of bitsandbytes' layers
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


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A checkpoint that passed every test that needs no weights in memory; `load` does the rest.

    Attributes:
        place: Where it lies.
        config: Its configuration.
        parameters: How many numbers it is made of.
        tokenizer: Its tokenizer.
        dtype: Of the weights; None as saved.
        device: Where to.
    """

    place: Place
    config: PreTrainedConfig
    parameters: int
    tokenizer: PreTrainedTokenizerBase
    dtype: torch.dtype | None
    device: torch.device

    def load(self, *, for_training: bool = False) -> OpenedModel:
        """Load the weights; see `open_model`."""
        require_room(self.place.name, *self._needed, self.device)
        model = _loaded(self.place.folder, self.config, self.dtype, self.device)
        if for_training:
            _keep_differentiable(model)
        require_captured(model)
        model.train(for_training)
        return OpenedModel(self.place.name, model, self.tokenizer, self.place.folder)

    @cached_property
    def _needed(self) -> tuple[int, str]:
        """Bytes of the weights and what they become; quantised weights are counted as they are stored."""
        weights = read_weights(self.place.folder)
        quantised = getattr(self.config, "quantization_config", None)
        if _unpacks(quantised, self.device):
            return self.parameters * torch.bfloat16.itemsize, "bfloat16, unpacked from 4 bits"
        if quantised is not None:
            return weights.bytes_in(None), "quantised form"
        becomes = self.dtype or getattr(self.config, "dtype", None) or weights.dtype
        return weights.bytes_in(becomes), str(becomes or "their own types").removeprefix("torch.")


def prepare_model(
    name: str | Path, *, dtype: torch.dtype | str | None = None, device: torch.device | str | None = None
) -> PreparedModel:
    """Look for everything that can be wrong with a checkpoint, and load no weights; see `open_model`."""
    wanted, target = _dtype(dtype), _device(device)
    place = find_place(name)
    config = read_config(place.folder)
    parameters = sum(parameter.numel() for parameter in outline(config, place.folder).parameters())
    tokenizer = load_tokenizer(place.folder, config)
    place.fetch_weights()
    prepared = PreparedModel(place, config, parameters, tokenizer, wanted, target)
    require_room(place.name, *prepared._needed, target)
    return prepared


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
    wanted = "float32" if dtype is None and for_training else dtype
    return prepare_model(name, dtype=wanted, device=device).load(for_training=for_training)


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


def _keep_differentiable(model: PreTrainedModel) -> None:
    """Keep bitsandbytes from repacking 4-bit weights at the first evaluation, as it does on CPUs with AVX512-BF16.

    Repacking rounds their scales for good, and no gradient passes the repacked ones.
    """
    for module in model.modules():
        if hasattr(module, REPACKS):
            setattr(module, REPACKS, False)


def _unpacks(quantised: Any, device: torch.device) -> bool:
    """Tell whether transformers turns quantised weights into plain ones: MXFP4 (gpt-oss) without a GPU."""
    told = quantised if isinstance(quantised, dict) else getattr(quantised, "__dict__", {})
    return device.type == "cpu" and str(told.get("quant_method", "")).rpartition(".")[2].lower() == "mxfp4"


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
