"""`TuningTrainer`: trains chosen parameters of any MoE model, and saves these alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from stickymoe.core.errors import CheckpointError
from stickymoe.core.files import whole_file
from stickymoe.experiments.tuning.arguments import TrustingObjective, TuningArguments
from stickymoe.experiments.tuning.optimiser import MasterAdamW
from stickymoe.experiments.tuning.reference import FrozenRouters
from stickymoe.training import StickyTrainer

CHOSEN_FILE = "chosen.safetensors"


class TuningTrainer(StickyTrainer):
    """Trains the parameters named, with a frozen copy of the routers as they are at the start where trust needs one.

    Checkpoints hold the chosen parameters, not the model: of a model of many gigabytes they are megabytes.

    Args:
        model: Any model whose routing can be captured, with the chosen parameters alone requiring gradients.
        args: Settings.
        chosen: Names of the parameters.
        kwargs: What `StickyTrainer` takes.
    """

    args: TuningArguments

    def __init__(self, model: nn.Module, args: TuningArguments, *, chosen: Sequence[str], **kwargs: Any) -> None:
        self._chosen = tuple(chosen)
        self._tuned: Any = model
        trusts = args.objective.get("trust", 0) > 0 or "trust" in args.report_terms
        self._frozen = FrozenRouters(model) if trusts else None
        with _taken_as_trainable(model):
            super().__init__(model, args, **kwargs)
        self._capture = self.sticky.attach(model)
        objective = self.sticky.objective
        if self._frozen is not None and isinstance(objective, TrustingObjective):
            objective.reference = self._frozen.take

    def remove_hooks(self) -> None:
        """Take everything off the model that this trainer put on it."""
        self._capture.remove()
        if self._frozen is not None:
            self._frozen.remove()

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Return AdamW over the chosen parameters, none of which decays."""
        if self.optimizer is None:
            parameters = [parameter for parameter in self._tuned.parameters() if parameter.requires_grad]
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            self.optimizer = MasterAdamW(
                parameters, self.args.learning_rate, betas, self.args.adam_epsilon, self.args.weight_decay
            )
        return self.optimizer

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        folder = Path(output_dir or self.run_folder)
        folder.mkdir(parents=True, exist_ok=True)
        with self._config_as_it_came():
            self._tuned.config.save_pretrained(folder)
        save_chosen(self._tuned, self._chosen, folder / CHOSEN_FILE)
        with whole_file(folder / "training_arguments.json") as temporary:
            temporary.write_text(str(self.args.to_json_string()) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_chosen(self._tuned, self._chosen, Path(resume_from_checkpoint) / CHOSEN_FILE)


def chosen_weights(model: nn.Module, names: Sequence[str]) -> dict[str, Tensor]:
    """Return copies of the named parameters, in main memory."""
    named = dict(model.named_parameters())
    return {name: named[name].detach().to("cpu", copy=True).contiguous() for name in names}


@torch.no_grad()
def put_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Write weights into the parameters of these names, in place."""
    named = dict(model.named_parameters())
    for name, values in weights.items():
        named[name].copy_(values)


def save_chosen(model: nn.Module, names: Sequence[str], path: Path) -> None:
    """Write the named parameters to a file, whole or not at all."""
    with whole_file(path) as temporary:
        save_file(chosen_weights(model, names), temporary, metadata={"format": "pt"})


def load_chosen(model: nn.Module, names: Sequence[str], path: Path) -> None:
    """Read the named parameters back.

    Raises:
        CheckpointError: The file cannot be read, or holds others.
    """
    try:
        weights = load_file(path)
    except Exception as error:  # safetensors raises its own, and what the system does
        raise CheckpointError(f"{path} cannot be read: {' '.join(str(error).split())}; start again") from error
    shapes = {name: parameter.shape for name, parameter in model.named_parameters() if name in set(names)}
    if {name: values.shape for name, values in weights.items()} != shapes:
        raise CheckpointError(f"{path} must hold the {len(names)} chosen parameters, it holds others; start again")
    put_weights(model, weights)


@contextmanager
def _taken_as_trainable(model: nn.Module) -> Iterator[None]:
    """The Trainer takes quantised models with adapters alone; routers that are not quantised are as good."""
    name = "_hf_peft_config_loaded"
    if not getattr(model, "is_quantized", False) or getattr(model, name, False):
        yield
        return
    setattr(model, name, True)
    try:
        yield
    finally:
        setattr(model, name, False)
