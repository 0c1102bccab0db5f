"""One tuning, step by step: measure the baseline, train the arms from one start, prove, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import torch

from stickymoe.capture.opening import OpenedModel
from stickymoe.core.files import write_json
from stickymoe.data.rows import collate_rows
from stickymoe.data.samples import Samples
from stickymoe.experiments.environment import commit, hardware, versions
from stickymoe.experiments.tuning.arguments import TuningArguments
from stickymoe.experiments.tuning.folder import MODEL, RESULT, TuneFolder
from stickymoe.experiments.tuning.lora import MARK, with_adapters
from stickymoe.experiments.tuning.measured import Measured, measured_of, price
from stickymoe.experiments.tuning.measuring import read_held_out
from stickymoe.experiments.tuning.objectives import CONTROL, choose_objective
from stickymoe.experiments.tuning.proof import Proof, hash_of
from stickymoe.experiments.tuning.rehearsal import rehearse
from stickymoe.experiments.tuning.saving import NotWritable, save_beside
from stickymoe.experiments.tuning.settings import TuneSettings
from stickymoe.experiments.tuning.text import Report, prepare_text
from stickymoe.experiments.tuning.trainer import (
    CHOSEN_FILE,
    TuningTrainer,
    chosen_weights,
    load_chosen,
    put_weights,
    save_chosen,
)
from stickymoe.training import fingerprint, router_parameters, train_only

SCHEMA = 1
BASELINE, CONTROL_ARM, TUNED = "baseline", "control", "tuned"
_LOGS = 50  # rows of an arm's log
MEAN_RATE = 0.55  # of the peak, over a warm-up and a cosine to a tenth
LEAST_REACH = 0.1  # of a weight, below which a tuning is told to be short


class TuneRun:
    """What `tune` does; made of its arguments."""

    def __init__(
        self,
        folder: TuneFolder,
        opened: OpenedModel,
        samples: Samples,
        settings: TuneSettings,
        say: Callable[[str], None],
        progress: Report,
    ) -> None:
        self.folder, self.opened, self.samples = folder, opened, samples
        self.settings, self.say, self.progress = settings, say, progress
        self.text = prepare_text(samples, opened.tokenizer, opened.model, settings, progress)
        self.model: Any = opened.model
        adapters: list[str] = []
        if settings.lora:
            torch.manual_seed(settings.seed)
            self.model, adapters = with_adapters(opened.model, settings.lora)
        self.chosen = train_only(self.model, [*router_parameters(self.model), *adapters])
        with without_own_balance(self.model):
            rehearse(self.model, self.text.train, settings)

    def everything(self, save_model: bool) -> tuple[dict[str, Measured], Proof, dict[str, Any]]:
        """Return the arms, the proof, and all of it as JSON."""
        began = time.perf_counter()
        start = chosen_weights(self.model, self.chosen)
        objective = replace(choose_objective(self.settings.objective), coefficients=self.settings.coefficients)
        self.say(objective.worded())
        for note in (*self.text.notes, *reach_notes(start, self.settings.learning_rate, self.text.steps)):
            self.say(note)
        self.progress("hashing what stays", 0, None)
        before = fingerprint(self.model, without=self.chosen)
        self.folder.begin(self._asked(before, hash_of(start)))
        arms = {BASELINE: self._measured(BASELINE)}
        if self.settings.control:
            arms[CONTROL_ARM] = self._arm(CONTROL_ARM, dict(CONTROL.coefficients), start)
        arms[TUNED] = self._arm(TUNED, self.settings.coefficients, start)
        self.progress("hashing what stayed", 0, None)
        proof = self._proof(before, start)
        content = self._content(arms, proof)
        if save_model:
            content["on_disk"] = self._save_model()
        content["seconds"] = round(time.perf_counter() - began, 1)
        write_json(self.folder.path / RESULT, content)
        return arms, proof, content

    def _arm(self, arm: str, coefficients: dict[str, float], start: dict[str, torch.Tensor]) -> Measured:
        """Train from the start and measure; an arm that is done already is read, its weights too."""
        path = self.folder.arm(arm)
        put_weights(self.model, start)
        if self.folder.measured(arm) is None:
            trainer = TuningTrainer(
                self.model,
                self._arguments(arm, coefficients),
                chosen=self.chosen,
                train_dataset=self.text.train,
                data_collator=collate_rows,
                progress=lambda step, steps, _: self.progress(f"training {arm}", step, steps),
            )
            try:
                with without_own_balance(self.model):
                    trainer.train(resume_from_checkpoint=True)
            finally:
                trainer.remove_hooks()
            save_chosen(self.model, self.chosen, path / CHOSEN_FILE)
        else:
            load_chosen(self.model, self.chosen, path / CHOSEN_FILE)
        return self._measured(arm)

    def _measured(self, arm: str) -> Measured:
        """Read the held-out text, unless it was read before."""
        found = self.folder.measured(arm)
        if found is None:
            seen = read_held_out(
                self.model,
                self.text.held_out,
                batch_size=self.settings.evaluation_batch,
                provenance={"model": self.opened.name, "arm": arm, "data": self.samples.name},
                progress=lambda done, total: self.progress(f"measuring {arm}", done, total),
            )
            found = measured_of(seen)
            seen.trace.save(self.folder.arm(arm) / "trace.parquet")
            self.folder.keep(arm, found)
        return found

    def _arguments(self, arm: str, coefficients: dict[str, float]) -> TuningArguments:
        asked, steps = self.settings, self.text.steps
        warmup = round(asked.warmup_share * steps)
        return TuningArguments(
            output_dir=str(self.folder.arm(arm)),
            objective=coefficients,
            lags=asked.lags,
            working_set_window=asked.working_set_window,
            coefficient_warmup_steps=warmup,
            warmup_steps=warmup,
            learning_rate=asked.learning_rate,
            max_steps=steps,
            per_device_train_batch_size=asked.batch_size,
            gradient_accumulation_steps=asked.accumulation,
            logging_steps=max(1, steps // _LOGS),
            save_steps=asked.checkpoint_every,
            activation_checkpointing=asked.activation_checkpointing,
            seed=asked.seed,
            use_cpu=self.model.device.type == "cpu",
        )

    def _proof(self, before: str, start: dict[str, torch.Tensor]) -> Proof:
        named = dict(self.model.named_parameters())
        return Proof(
            chosen=self.chosen,
            trained=sum(named[name].numel() for name in self.chosen),
            total=sum(parameter.numel() for parameter in named.values()),
            before=before,
            after=fingerprint(self.model, without=self.chosen),
            moved=[name for name in self.chosen if not torch.equal(named[name].detach().cpu(), start[name])],
        )

    def _save_model(self) -> dict[str, Any] | None:
        """Write the tuned model, adapters merged, and say how its tensors differ from the checkpoint's."""
        self.progress("saving the model", 0, None)
        model = self.model.merge_and_unload() if self.settings.lora else self.model
        try:
            found = save_beside(model, self.opened.tokenizer, self.folder.path / MODEL, self.opened.folder)
        except NotWritable:
            self.say(
                "the tuned model is not saved, since transformers cannot write its quantised weights back; what was "
                f"trained is in {self.folder.arm(TUNED) / CHOSEN_FILE}"
            )
            return None
        return None if found is None else asdict(found)

    def _asked(self, others: str, start: str) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": self.opened.name,
            "weights_sha256": others,
            "start_sha256": start,
            "data": self.samples.name,
            "data_fingerprint": self.samples.fingerprint,
            **self.settings.as_dict(),
        }

    def _content(self, arms: dict[str, Measured], proof: Proof) -> dict[str, Any]:
        prices = {f"{TUNED} - {other}": asdict(price(arms[other], arms[TUNED])) for other in arms if other != TUNED}
        return {
            "schema": SCHEMA,
            "model": self.opened.name,
            "data": self.text.facts,
            "settings": self.settings.as_dict(),
            "steps": self.text.steps,
            "arms": {name: found.as_dict() for name, found in arms.items()},
            "cross_entropy_difference": prices,
            "proof": asdict(proof),
            "hardware": hardware(),
            "versions": versions(),
            "commit": commit(),
        }


def reach_notes(start: dict[str, torch.Tensor], rate: float, steps: int) -> Iterator[str]:
    """Say if so few steps at so low a rate can hardly move a router: Adam moves a weight by the rate a step."""
    reach = MEAN_RATE * rate * steps
    routers = [weights.float() for name, weights in start.items() if MARK not in name]
    size = float(torch.cat([weights.flatten() for weights in routers]).square().mean().sqrt())
    if reach < LEAST_REACH * size:
        yield (
            f"{steps} steps at a peak rate of {rate:g} can move a router's weights by some {reach:.1g}, and these are "
            f"{size:.1g} on average: little will change; give more tokens or a higher learning rate"
        )


@contextmanager
def without_own_balance(model: Any) -> Iterator[None]:
    """Switch the model's own load-balancing loss off for a while: its balance is not what is trained here."""
    name = "output_router_logits"
    configs = {id(config): config for config in (model.config, model.config.get_text_config())}
    before = [(config, getattr(config, name)) for config in configs.values() if getattr(config, name, None) is not None]
    try:
        for config, _ in before:
            setattr(config, name, False)
        yield
    finally:
        for config, value in before:
            setattr(config, name, value)
