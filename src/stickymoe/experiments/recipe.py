"""A run is a recipe: its tables, each with its keys and their rules. Files and overrides are in `recipe_file.py`.

No `from __future__ import annotations` here: pydantic reads the field types at run time.
"""

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Coefficient = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]

# Keys of the objective that are no term's coefficient.
SHARED_SETTINGS = ("window", "boundary_weight", "warmup_steps", "allow_unshared", "reset_at_documents")
# Keys of the model that say whose shape the others are.
ORIGINS = ("architecture", "pretrained")
# How the reference model and transformers' architectures call the number of experts.
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
# Keys of training that decide what is noted on the way, not what comes out.
BOOKKEEPING = ("log_every", "evaluate_every", "checkpoint_every", "keep_checkpoints", "report_to")


class Table(BaseModel):
    """One table of a recipe: frozen, no key it does not know, no value turned into another type, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataTable(Table):
    """Which text, cut how.

    Attributes:
        corpus: `sotu`, `wikitext-2-raw`, `wikitext-2-v1`, or the path of a folder or text file.
        tokenizer: `auto` (the corpus' own choice), `gpt2`, `bpe-SIZE`, or the path of a folder with GPT-2's files.
        sequence_length: Tokens a chunk; two at least, since neighbours are compared.
        respect_documents: Whether pairs, attention and positions stop at document borders.
    """

    corpus: Text = "sotu"
    tokenizer: Text = "auto"
    sequence_length: Annotated[int, Field(ge=2)] = 256
    respect_documents: bool = True


class ModelTable(Table):
    """Shape of the model; see `StickyMoEConfig`. A preset gives the shape, other keys replace parts of it.

    Attributes:
        architecture: A causal MoE language model of transformers by its model type, as `mixtral`, instead of the
            reference model. All other keys are then settings of its config class and checked against it.
        pretrained: A folder or hub name of a model whose shape, weights and tokenizer the run goes on with; it takes no
            other key.
    """

    # Keys that are not below are for an architecture's config to judge
    model_config = ConfigDict(extra="allow")

    architecture: Text | None = None
    pretrained: Text | None = None
    preset: Text | None = None
    hidden_size: Positive | None = None
    num_hidden_layers: Positive | None = None
    num_attention_heads: Positive | None = None
    expert_intermediate_size: Positive | None = None
    num_experts: Positive | None = None
    num_experts_per_tok: Positive | None = None
    max_position_embeddings: Positive | None = None
    router_type: Text | None = None
    router_window: Positive | None = None
    router_bonus: Coefficient | None = None
    router_recursive: bool | None = None
    router_span: NotNegative | None = None
    router_input: Text | None = None
    experts_shared: Text | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The keys that are given, but for `ORIGINS`."""
        return {name: value for name, value in self if value is not None and name not in ORIGINS}

    @property
    def is_reference(self) -> bool:
        """Whether this is the reference model, and no architecture of transformers."""
        return self.architecture is None and self.pretrained is None

    @model_validator(mode="after")
    def _keys_belong_to_their_origin(self) -> "ModelTable":
        faults: list[InitErrorDetails] = []
        for name, value in (self.model_extra or {}).items():
            if self.is_reference:
                faults.append({"type": "extra_forbidden", "loc": (name,), "input": value})
            elif not _is_plain(value):
                faults.append({"type": _NOT_PLAIN, "loc": (name,), "input": value})
        others = [name for name in (*self.settings, "architecture") if getattr(self, name) is not None]
        if self.pretrained is not None and others:
            rule = PydanticCustomError("pretrained_alone", "left out beside model.pretrained, which has its own")
            faults.append({"type": rule, "loc": (others[0],), "input": getattr(self, others[0])})
        if faults:
            raise ValidationError.from_exception_data("model", faults)
        return self


_NOT_PLAIN = PydanticCustomError("plain_value", "a finite number, a text, true, false, or a list or table of these")


def _is_plain(value: Any) -> bool:
    """Tell whether JSON and TOML both hold a value."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(part) for name, part in value.items())
    if isinstance(value, list):
        return all(_is_plain(part) for part in value)
    return isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


class ObjectiveTable(Table):
    """Coefficients of the terms beside cross-entropy, and the settings they share; see `Objective`.

    Attributes:
        lag: Of the term that compares at ReMoE's lags; `trust` is no key, since a recipe's run has no frozen router.
        boundary_weight: Weight of pairs that enter a new sentence or line, by the tokenizer's tokens that end one.
        warmup_steps: Steps over which the locality terms' coefficients, and a window router's bonus, grow from 0.
        reset_at_documents: Whether pairs and windows end at document borders also where `data.respect_documents` is off
            and attention runs on.
    """

    consistency: Coefficient = 0.0
    anchor: Coefficient = 0.0
    load_balancing: Coefficient = 0.0
    router_z: Coefficient = 0.0
    cross_layer: Coefficient = 0.0
    reuse: Coefficient = 0.0
    smoothness: Coefficient = 0.0
    lag: Coefficient = 0.0
    working_set: Coefficient = 0.0
    window: Positive = 4
    boundary_weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    warmup_steps: NotNegative = 0
    allow_unshared: bool = False
    reset_at_documents: bool = False

    def coefficients(self) -> dict[str, float]:
        """Return the terms that are switched on, by name."""
        return {name: value for name, value in self if name not in SHARED_SETTINGS and value > 0}


class TrainingTable(Table):
    """How long, how fast, in what precision, and what is noted on the way.

    Attributes:
        steps: Optimizer steps.
        batch_size: Chunks a micro-batch; `gradient_accumulation` of them make a step.
        train_only: `routers` freezes everything else; `all` trains the whole model.
        start_from: A finished run whose weights this one begins with: the name of a run in the folder beside this one,
            or a path. Without it they are drawn anew.
        evaluate_every: Steps between two measurements of the validation cross-entropy; 0 for none.
        report_to: Trackers that transformers' Trainer writes to, as `tensorboard`.
    """

    steps: Positive = 1000
    batch_size: Positive = 16
    gradient_accumulation: Positive = 1
    peak_learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    warmup_steps: NotNegative = 100
    weight_decay: Coefficient = 0.1
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    precision: Literal["bf16", "fp32"] = "bf16"
    activation_checkpointing: bool = False
    train_only: Literal["all", "routers"] = "all"
    start_from: Text | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    log_every: Positive = 20
    evaluate_every: NotNegative = 0
    checkpoint_every: Positive = 200
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    report_to: Annotated[tuple[Text, ...], Field(strict=False)] = ()


def folder_name(name: str) -> str:
    """Return `name` if a folder can be called so. Raises `ValueError` otherwise."""
    if name in ("", ".", "..") or any(sign in name for sign in "/\\\0\n"):
        raise ValueError("must be a plain name, without / or \\")
    return name


class Recipe(Table):
    """Everything that determines a run.

    Attributes:
        name: Name of the run, and of its folder where no other is given; the file's stem if not given.
        label: How tables and figures call it; the name if not given.
    """

    name: Annotated[str, AfterValidator(folder_name)] = "run"
    label: Text | None = None
    data: DataTable = DataTable()
    model: ModelTable = ModelTable()
    objective: ObjectiveTable = ObjectiveTable()
    training: TrainingTable = TrainingTable()

    def outcome(self) -> dict[str, dict[str, Any]]:
        """Return the tables without `BOOKKEEPING`: whatever changes the trained weights, as JSON."""
        return self._without_bookkeeping()

    def fingerprint(self) -> str:
        """Return a hash of `outcome()`: equal for runs that end with the same weights, whatever they are called.

        Keys at their defaults are left out, so that a key that is new in a later version changes no hash.
        """
        content = self._without_bookkeeping(exclude_defaults=True)
        content = {table: entries for table, entries in content.items() if entries}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def _without_bookkeeping(self, *, exclude_defaults: bool = False) -> dict[str, dict[str, Any]]:
        told: dict[str, bool | set[str]] = {"name": True, "label": True, "training": set(BOOKKEEPING)}
        return self.model_dump(mode="json", exclude=told, exclude_defaults=exclude_defaults)
