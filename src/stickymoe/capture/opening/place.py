"""Where a checkpoint lies: a model folder, the model inside a run folder, or a name on the hub."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from stickymoe.core.errors import CheckpointError
from stickymoe.data.hub import HubUnreachable, download

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SMALL = ("*.json", "*.txt", "*.model", "*.jinja")  # what must be known before gigabytes are fetched
_RUN_MODEL, _RUN_RECIPE = "model", "recipe.toml"  # in a run folder of `stickymoe train`


@dataclass(frozen=True)
class Place:
    """A checkpoint's folder.

    Attributes:
        name: What the user called it.
        folder: Where config and tokenizer are.
        on_hub: Whether weights are still to be fetched.
    """

    name: str
    folder: Path
    on_hub: bool = False

    def fetch_weights(self) -> None:
        """Fetch the weights where the hub has them.

        Raises:
            CheckpointError: The hub does not give them.
        """
        if self.on_hub:
            _snapshot(self.name, (*_SMALL, "*.safetensors"))


def find_place(name: str | Path) -> Place:
    """Return where a checkpoint lies; of one on the hub, everything but its weights is fetched.

    Raises:
        CheckpointError: It is nowhere, or what is there is no checkpoint.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return Place(str(name), _inside(path))
    if path.exists():
        raise CheckpointError(f"{name} must be a folder with config.json and safetensors, got a file; give its folder")
    if not _HUB_NAME.fullmatch(str(name)):
        raise CheckpointError(
            f"{name} does not exist; give a folder with a saved model, a run of stickymoe train, or a name on the hub"
        )
    try:
        download(str(name), "config.json", "model")
    except HubUnreachable as error:
        raise CheckpointError(
            f"{name} is no folder here and could not be had from the hub ({error}); give the path of a folder"
        ) from error
    return Place(str(name), _snapshot(str(name), _SMALL), on_hub=True)


def _inside(folder: Path) -> Path:
    for place in (folder / _RUN_MODEL, folder):
        if (place / "config.json").is_file():
            return place
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(f"{folder} holds a PEFT adapter, not a model; merge it into its model and save that")
    if (folder / _RUN_RECIPE).is_file():
        raise CheckpointError(f"{folder} holds an unfinished run; finish it with stickymoe train --resume")
    if next(folder.glob("*.gguf"), None) is not None:
        raise CheckpointError(f"{folder} holds GGUF files; give the folder in Hugging Face format they were made from")
    raise CheckpointError(
        f"{folder} holds no config.json; give a folder with a saved model, or a run of stickymoe train"
    )


def _snapshot(name: str, patterns: tuple[str, ...]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except Exception as error:  # the client's own, of the network and of the disk
        with contextlib.suppress(Exception):
            return Path(snapshot_download(name, allow_patterns=list(patterns), local_files_only=True))
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{name} could not be fetched from the hub: {reason}; give the path of a folder"
        ) from error
